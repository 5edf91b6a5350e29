package firewall

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// certificateLife is how long certificates are valid. It is longer than any test advances
// a server's clock.
const certificateLife = 20 * 365 * 24 * time.Hour

// Authority is the certificate authority that sandboxes trust, so that the firewall can
// inspect their TLS connections.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte // the certificate

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// NewAuthority creates an authority, and the file that [ParseAuthority] reads.
func NewAuthority() (a *Authority, file []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Sandbox Emulator " + rand.Text()[:8]},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(certificateLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	file = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})...)
	a, err = ParseAuthority("", file)
	return a, file, err
}

// ParseAuthority reads an authority from the content of a file. name is for errors.
func ParseAuthority(name string, file []byte) (*Authority, error) {
	first, rest := pem.Decode(file)
	second, _ := pem.Decode(rest)
	if first == nil || second == nil {
		return nil, fmt.Errorf("%s is damaged", name)
	}
	cert, err := x509.ParseCertificate(first.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err)
	}
	key, err := x509.ParseECPrivateKey(second.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err)
	}
	return &Authority{cert: cert, key: key, PEM: pem.EncodeToMemory(first), leaves: make(map[string]*tls.Certificate)}, nil
}

func serial() *big.Int { return new(big.Int).SetBytes([]byte(rand.Text())[:16]) }

// certificate returns the certificate of a server with a name.
func (a *Authority) certificate(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if leaf := a.leaves[name]; leaf != nil {
		return leaf, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), DNSNames: []string{name}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	if len(a.leaves) >= 1000 { // a wildcard can match any number of names
		clear(a.leaves)
	}
	leaf := &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}
	a.leaves[name] = leaf
	return leaf, nil
}
