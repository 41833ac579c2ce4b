package server

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// TLS is how a server speaks TLS.
type TLS struct {
	On    bool
	HTTP2 bool          // nginx: it offers HTTP/2
	RSA   int           // bits of its key; 0 = ECDSA, P-256
	V12   bool          // no TLS 1.3
	Wait  time.Duration // Web: before it answers a ClientHello, as for who may connect
	Ask   bool          // WebBackend: calls what is behind it, before it answers a ClientHello
	Keys  bool          // Web: other ticket keys each time, as of servers that share none
	Cache string        // NginxFPM: ssl_session_cache, without tickets; empty = tickets
	None  bool          // no sessions
}

// UnderTLS has clients talk to the servers under TLS: to nginx in HTTP/2, and so to the
// service in Go, and to one of gRPC; to that in Python in HTTP/1.1. Other servers get an
// nginx before them.
func (s *Setup) UnderTLS() {
	s.TLS = TLS{On: true, HTTP2: true}
	proxied := len(s.Hops) > 0 && (s.Hops[0].Language == "nginx" || s.Hops[0].RPC)
	speaks := len(s.Hops) == 0 && (s.Kind.HasNginx() || s.Kind == GoApp || s.Kind == PythonApp)
	if !proxied && !speaks {
		s.Hops = slices.Insert(s.Hops, 0, Hop{Language: "nginx", Name: "edge"})
	}
}

// Nginx is the end of nginx's listen, and what it takes besides.
func (t TLS) Nginx(dir string) string {
	if !t.On {
		return ""
	}
	listen := " ssl"
	if t.HTTP2 {
		listen += " http2"
	}
	return fmt.Sprintf("%s;\n\t\tssl_certificate %[2]s/tls.pem;\n\t\tssl_certificate_key %[2]s/tls.pem", listen, dir)
}

// certificate is a key and what it signed itself, as PEM.
func (t TLS) certificate() ([]byte, error) {
	var key crypto.Signer
	var err error
	if t.RSA > 0 {
		key, err = rsa.GenerateKey(rand.Reader, t.RSA)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"booking.example"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, b := range []*pem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: private}} {
		if err := pem.Encode(&out, b); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// config is that of a server in Go; nil where it speaks no TLS.
func (t TLS) config(c caller) (*tls.Config, error) {
	if !t.On {
		return nil, nil
	}
	text, err := t.certificate()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: t.None}
	if t.V12 {
		config.MaxVersion = tls.VersionTLS12
	}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		time.Sleep(t.Wait)
		if t.Ask {
			if err := c.call(hello.Context()); err != nil {
				return nil, err
			}
		}
		if !t.Keys {
			return nil, nil
		}
		own := config.Clone()
		own.GetConfigForClient = nil
		var key [32]byte
		rand.Read(key[:])
		own.SetSessionTicketKeys([][32]byte{key})
		return own, nil
	}
	return config, nil
}

// tlsFile writes what servers read, the key and the certificate, and gives its name; ""
// where they speak no TLS.
func (s *starter) tlsFile() (string, error) {
	if !s.v.TLS.On {
		return "", nil
	}
	return s.writePair("tls.pem")
}

// writePair writes a key and its certificate into a file of that name.
func (s *starter) writePair(name string) (string, error) {
	text, err := s.v.TLS.certificate()
	if err != nil {
		return "", err
	}
	name = filepath.Join(s.box.Dir, name)
	return name, os.WriteFile(name, text, 0o644)
}

// pairOf is the key and the certificate of hop n, as tlsFile.
func (s *starter) pairOf(n int) (string, error) {
	if n == 0 {
		return s.tlsFile()
	}
	if !s.v.Hops[n].TLS {
		return "", nil
	}
	return s.writePair(fmt.Sprintf("tls%d.pem", n))
}
