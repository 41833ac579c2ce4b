package kube

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of one node.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// valid is how long certificates are: longer than any node lives.
const valid = 24 * time.Hour

// newAuthority makes a certificate authority whose files are in dir, its own ca.crt.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "slowray-kube"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}}
	return a, a.write("ca", a.cert, key)
}

// sign makes NAME.crt and NAME.key, for a user, or for a server with these addresses.
func (a *authority) sign(name, user string, groups []string, addrs ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: user, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, addr := range addrs {
		if ip := net.ParseIP(addr); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, addr)
		}
	}
	return a.write(name, c, key)
}

func (a *authority) write(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	signed, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, crypto.Signer(a.key))
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", name, err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := a.pem(name+".key", "EC PRIVATE KEY", raw); err != nil {
		return err
	}
	return a.pem(name+".crt", "CERTIFICATE", signed)
}

func (a *authority) pem(name, kind string, raw []byte) error {
	return os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600)
}

// kubeconfig writes NAME.conf, by which NAME.crt is shown to the API server.
func (a *authority) kubeconfig(name string) error {
	path := filepath.Join(a.dir, name)
	return os.WriteFile(path+".conf", fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: node
  cluster: {server: "%s", certificate-authority: "%s"}
users:
- name: "%[3]s"
  user: {client-certificate: "%[4]s.crt", client-key: "%[4]s.key"}
contexts:
- name: node
  context: {cluster: node, user: "%[3]s"}
current-context: node
`, apiURL, filepath.Join(a.dir, "ca.crt"), name, path), 0o600)
}
