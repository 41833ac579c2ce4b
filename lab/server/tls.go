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
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// TLS is how a server speaks TLS.
type TLS struct {
	On   bool
	RSA  int           // bits of its key; 0 = ECDSA, P-256
	Wait time.Duration // Web: before it answers a ClientHello, as for who may connect
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
func (t TLS) config() (*tls.Config, error) {
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
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			time.Sleep(t.Wait)
			return nil, nil
		},
	}, nil
}

// tlsFiles writes what nginx reads.
func (s *starter) tlsFiles() error {
	if !s.v.TLS.On {
		return nil
	}
	text, err := s.v.TLS.certificate()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.box.Dir, "tls.pem"), text, 0o644)
}
