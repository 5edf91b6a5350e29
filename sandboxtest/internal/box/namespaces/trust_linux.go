package namespaces

import (
	"bytes"
	"crypto/sha1" // OpenSSL names files by it
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/sudo"
)

// trustedName is the file with the authority's certificate in a sandbox. Most programs read
// the file bundleName.
const (
	trustedName = sudo.RunDir + "/ca.pem"
	bundleName  = "/etc/ssl/certs/ca-certificates.crt"
)

// anchorName is where Debian's tool looks for authorities when it rebuilds its list, with
// the file name that the service uses.
const anchorName = "/usr/local/share/ca-certificates/vercel-proxy-ca.crt"

// bundles are the distributions' files of trusted authorities.
var bundles = []string{
	bundleName, "/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem", "/etc/ssl/cert.pem",
}

// trustEnv returns variables for programs that have their own list of authorities. They
// make these programs use the authority in the sandbox's list.
func trustEnv(list string) []string {
	return []string{"NODE_EXTRA_CA_CERTS=" + trustedName, "SSL_CERT_FILE=" + list, "REQUESTS_CA_BUNDLE=" + list}
}

// withAuthority appends an authority to a list.
func withAuthority(list, authority []byte) string {
	return string(bytes.Join([][]byte{bytes.TrimSpace(list), authority}, []byte("\n")))
}

// trust makes the programs of a base layer trust an authority.
func (b baseLayer) trust(authority []byte) error {
	if len(authority) == 0 {
		return nil
	}
	if err := os.WriteFile(b.name(trustedName), authority, 0o644); err != nil {
		return err
	}
	done := make(map[string]bool)
	for _, name := range bundles {
		target, err := filepath.EvalSymlinks(name)
		if errors.Is(err, fs.ErrNotExist) && name == bundleName {
			target, err = b.resolveMissing(name)
		}
		if err != nil || done[target] {
			continue
		}
		done[target] = true
		old, err := os.ReadFile(target)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := b.writeIn(target, withAuthority(old, authority)); err != nil {
			return err
		}
	}
	name, err := hashName(authority)
	if err != nil {
		return err
	}
	for _, name := range []string{filepath.Join(filepath.Dir(bundleName), name), anchorName} {
		name, err := b.resolveMissing(name)
		if err != nil {
			return err
		}
		if err := b.writeIn(name, string(authority)); err != nil {
			return err
		}
	}
	return nil
}

// resolveMissing returns the path of a missing file, with the links in its directories
// resolved.
func (b baseLayer) resolveMissing(name string) (string, error) {
	dir, base := filepath.Split(name)
	dir = filepath.Clean(dir)
	found, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) && dir != "/" {
		found, err = b.resolveMissing(dir)
	}
	return filepath.Join(found, base), err
}

// writeIn writes a file in the base layer. If the machine's root has the file's directory,
// the directory's other files stay visible.
func (b baseLayer) writeIn(name, text string) error {
	if err := b.makeDir(filepath.Dir(name)); err != nil {
		return err
	}
	return writeFile(b.name(name), text, 0o644)
}

// makeDir creates a directory, not a link, in the base layer. If the machine's root has the
// directory, too, its files stay visible.
func (b baseLayer) makeDir(dir string) error {
	if dir == "/" {
		return nil
	}
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		return b.copyDir(dir, info.Mode())
	}
	if err := b.makeDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(b.name(dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// hashName returns the file name under which OpenSSL looks for an authority. The
// authority's name must consist of a common name alone.
func hashName(authority []byte) (string, error) {
	block, _ := pem.Decode(authority)
	if block == nil {
		return "", errors.New("the authority is not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", err
	}
	type attribute struct {
		Type  asn1.ObjectIdentifier
		Value string `asn1:"utf8"`
	}
	canonical := strings.Join(strings.Fields(strings.ToLower(cert.Subject.CommonName)), " ")
	set, err := asn1.MarshalWithParams([]attribute{{asn1.ObjectIdentifier{2, 5, 4, 3}, canonical}}, "set")
	if err != nil {
		return "", err
	}
	sum := sha1.Sum(set)
	return fmt.Sprintf("%08x.0", binary.LittleEndian.Uint32(sum[:])), nil
}
