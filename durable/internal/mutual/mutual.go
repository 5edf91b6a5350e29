// Package mutual makes keys by which processes of one user authenticate each other. It is
// mutual TLS with one key and one self-signed certificate.
package mutual

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"time"
)

// IP is the address that certificates are for.
const IP = "127.0.0.1"

// NewKey makes a key and a certificate for it, as PEM.
func NewKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "go-vercel/sandbox"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(10, 0, 0),
		IPAddresses: []net.IP{net.ParseIP(IP)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...), nil
}

// KeyOf returns the key in a file. It makes a new key unless the file has one that is valid for
// another year.
func KeyOf(file string) ([]byte, error) {
	key, err := os.ReadFile(file)
	if err == nil {
		pair, err := tls.X509KeyPair(key, key)
		if err == nil && pair.Leaf.NotAfter.After(time.Now().AddDate(1, 0, 0)) {
			return key, nil
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if key, err = NewKey(); err != nil {
		return nil, err
	}
	return key, WriteKey(file, key)
}

// WriteKey atomically writes a key to a file that only its owner can read.
func WriteKey(file string, key []byte) error {
	fresh := file + ".new"
	_ = os.Remove(fresh) // it may have another mode
	if err := os.WriteFile(fresh, key, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}

// Client returns the configuration for clients of a server with the key.
func Client(key []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(key, key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(key) {
		return nil, errors.New("the key has no certificate")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS13}, nil
}

// Server returns the configuration of a server that accepts only clients with the key.
func Server(key []byte) (*tls.Config, error) {
	c, err := Client(key)
	if err != nil {
		return nil, err
	}
	c.RootCAs, c.ClientCAs, c.ClientAuth = nil, c.RootCAs, tls.RequireAndVerifyClientCert
	return c, nil
}
