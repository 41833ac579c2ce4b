package capture

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
)

// Keys are the secrets of connections, by their label and the random number of their ClientHello.
type Keys map[string][]byte

// ReadKeys reads what programs write to the file that SSLKEYLOGFILE names (RFC 9850): lines of a label, a random
// number and a secret, in hexadecimal. Lines of another form are passed over.
func ReadKeys(r io.Reader) (Keys, error) {
	k := Keys{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) != 3 {
			continue
		}
		random, err := hex.DecodeString(f[1])
		secret, err2 := hex.DecodeString(f[2])
		if err == nil && err2 == nil {
			k[f[0]+string(random)] = secret
		}
	}
	return k, lines.Err()
}

// opener has the keys of one connection.
type opener struct {
	v13            bool
	hash           func() hash.Hash
	client, server direct
}

// direct is one direction's keys.
type direct struct {
	aead   cipher.AEAD
	iv     []byte
	number uint64 // of the next record
	size   int    // of a key
	sealed bool   // TLS 1.2: what follows is encrypted

	// Secrets of TLS 1.3 that are to come; nil = not any more.
	early, handshake, traffic []byte
}

// open reads both hellos, and finds the connection's keys.
func open(keys Keys, asks, answers []byte) (*opener, error) {
	client, err := hello(asks, clientHello)
	if err != nil {
		return nil, err
	}
	server, err := hello(answers, serverHello)
	if err != nil {
		return nil, err
	}
	random, session := string(client[2:34]), int(server[34])
	if len(server) < 35+session+2 {
		return nil, errors.New("ServerHello is cut")
	}
	o, size := &opener{}, 0
	switch suite := binary.BigEndian.Uint16(server[35+session:]); suite {
	case 0x1301, 0xc02b, 0xc02f: // with AES_128_GCM_SHA256
		o.hash, size = sha256.New, 16
	case 0x1302, 0xc02c, 0xc030: // with AES_256_GCM_SHA384
		o.hash, size = sha512.New384, 32
	default:
		return nil, fmt.Errorf("cipher %#x is none that is read here", suite)
	}
	o.client.size, o.server.size = size, size
	if o.client.traffic = keys["CLIENT_TRAFFIC_SECRET_0"+random]; o.client.traffic != nil {
		o.v13 = true
		o.server.traffic = keys["SERVER_TRAFFIC_SECRET_0"+random]
		o.client.handshake = keys["CLIENT_HANDSHAKE_TRAFFIC_SECRET"+random]
		o.server.handshake = keys["SERVER_HANDSHAKE_TRAFFIC_SECRET"+random]
		o.client.early = keys["CLIENT_EARLY_TRAFFIC_SECRET"+random]
		o.client.use(o.hash, o.client.handshake)
		if o.client.early != nil {
			o.client.use(o.hash, o.client.early)
		}
		o.server.use(o.hash, o.server.handshake)
		return o, nil
	}
	master := keys["CLIENT_RANDOM"+random]
	if master == nil {
		return nil, errors.New("no keys of it")
	}
	// RFC 5246, 6.3, and RFC 5288, 3.
	block := prf(o.hash, master, "key expansion"+string(server[2:34])+random, 2*(size+4))
	o.client.key(block[:size], block[2*size:2*size+4])
	o.server.key(block[size:2*size], block[2*size+4:])
	return o, nil
}

// hello gives the first message of an end, from its version on.
func hello(b []byte, kind byte) ([]byte, error) {
	from := recordHeader + messageHeader
	if len(b) < from+35 || b[0] != handshakeRecord || b[recordHeader] != kind {
		return nil, fmt.Errorf("begins with no message %d of a handshake", kind)
	}
	return b[from:], nil
}

// prf is that of TLS 1.2, RFC 5246 section 5.
func prf(h func() hash.Hash, secret []byte, seed string, size int) (out []byte) {
	sum := func(s string) string {
		m := hmac.New(h, secret)
		m.Write([]byte(s))
		return string(m.Sum(nil))
	}
	for a := sum(seed); len(out) < size; a = sum(a) {
		out = append(out, sum(a+seed)...)
	}
	return out[:size]
}

// expand is HKDF-Expand-Label of TLS 1.3, RFC 8446 section 7.1.
func expand(h func() hash.Hash, secret []byte, label string, size int) []byte {
	label = "tls13 " + label
	info := string([]byte{byte(size >> 8), byte(size), byte(len(label))}) + label + "\x00"
	out, err := hkdf.Expand(h, secret, info, size)
	if err != nil {
		panic(err) // of a size that no cipher has
	}
	return out
}

// use goes on with another secret.
func (d *direct) use(h func() hash.Hash, secret []byte) {
	if secret == nil {
		return
	}
	d.key(expand(h, secret, "key", d.size), expand(h, secret, "iv", 12))
}

func (d *direct) key(key, iv []byte) {
	block, err := aes.NewCipher(key)
	if err == nil {
		d.aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		panic(err) // of a size that is none of AES
	}
	d.iv, d.number = iv, 0
}

// next takes in that an end has said a message, after which it may have other keys.
func (o *opener) next(d *direct, message byte) {
	if !o.v13 {
		return
	}
	switch message {
	case endOfEarlyData:
		d.early = nil
		d.use(o.hash, d.handshake)
	case finished:
		d.use(o.hash, d.traffic)
	}
}

// open decrypts a record.
func (d *direct) open(record []byte, v13 bool) (kind byte, clear []byte, err error) {
	if d.aead == nil {
		return 0, nil, errors.New("no keys of it")
	}
	kind, body := record[0], record[recordHeader:]
	if !v13 { // RFC 5246, 6.2.3.3
		if len(body) < 8+d.aead.Overhead() {
			return 0, nil, errors.New("too short")
		}
		nonce := append(bytes.Clone(d.iv), body[:8]...)
		more := binary.BigEndian.AppendUint64(nil, d.number)
		more = append(more, record[:3]...)
		more = binary.BigEndian.AppendUint16(more, uint16(len(body)-8-d.aead.Overhead()))
		d.number++
		clear, err = d.aead.Open(nil, nonce, body[8:], more)
		return kind, clear, err
	}
	nonce := bytes.Clone(d.iv) // RFC 8446, 5.3
	for i, b := range binary.BigEndian.AppendUint64(nil, d.number) {
		nonce[4+i] ^= b
	}
	if clear, err = d.aead.Open(nil, nonce, body, record[:recordHeader]); err != nil {
		return 0, nil, err
	}
	d.number++
	clear = bytes.TrimRight(clear, "\x00")
	if len(clear) == 0 {
		return 0, nil, errors.New("a record without a type")
	}
	return clear[len(clear)-1], clear[:len(clear)-1], nil
}
