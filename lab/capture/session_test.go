package capture

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

// TestDecrypt: what both ends of TLS said, and when, is found in packets; and no other keys open them.
func TestDecrypt(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	for _, c := range []struct {
		version, cipher uint16
	}{{tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, {tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}, {tls.VersionTLS13, 0}} {
		t.Run(tls.VersionName(c.version)+" "+tls.CipherSuiteName(c.cipher), func(t *testing.T) {
			var keys bytes.Buffer
			asks, answers := bytes.Repeat([]byte("asks "), 100), bytes.Repeat([]byte("answers "), 10_000)
			var packets []Packet
			var port net.Addr
			before := time.Now().UnixNano()
			inNamespace(t, func() error {
				live, err := Start(Options{Interface: "lo", Snap: 1 << 17})
				if err != nil {
					return err
				}
				plain, served, err := pair("127.0.0.1")
				if err != nil {
					return err
				}
				port = plain.LocalAddr()
				client := tls.Client(plain, &tls.Config{InsecureSkipVerify: true, KeyLogWriter: &keys, MaxVersion: c.version, CipherSuites: []uint16{c.cipher}})
				server := tls.Server(served, &tls.Config{Certificates: []tls.Certificate{cert}})
				done := make(chan error, 1)
				go func() {
					_, err := io.ReadFull(server, make([]byte, len(asks)))
					if err == nil {
						_, err = server.Write(answers)
					}
					done <- err
				}()
				if _, err = client.Write(asks); err == nil {
					_, err = io.ReadFull(client, make([]byte, len(answers)))
				}
				if err == nil {
					err = <-done
				}
				if err != nil {
					return err
				}
				packets, err = live.Stop()
				return err
			})
			after := time.Now().UnixNano()
			secrets := keys.String()
			k, err := ReadKeys(&keys)
			if err != nil {
				t.Fatal(err)
			}
			all, err := Decrypt(packets, k)
			if err != nil {
				t.Fatal(err)
			}
			if len(all) != 1 || all[0].Client.String() != port.String() {
				t.Fatalf("%d sessions: %+v", len(all), all)
			}
			last := before
			for _, way := range []struct {
				records []Record
				want    []byte
			}{{all[0].Asks, asks}, {all[0].Answers, answers}} {
				var got []byte
				for _, r := range way.records {
					got = append(got, r.Clear...)
					if r.Left < last || r.Came < r.Left || r.Came > after || r.Early {
						t.Errorf("a record left at %d and came at %d, after %d", r.Left, r.Came, last)
					}
					last = r.Left
				}
				if !bytes.Equal(got, way.want) {
					t.Errorf("%d bytes, want %d", len(got), len(way.want))
				}
			}
			for name, secret := range k {
				k[name] = append([]byte{secret[0] ^ 1}, secret[1:]...)
			}
			if _, err := Decrypt(packets, k); err == nil {
				t.Errorf("opened by keys that are none of it: %s", secrets)
			}
			if _, err := Decrypt(packets, Keys{}); err == nil {
				t.Error("opened without keys")
			}
		})
	}
}
