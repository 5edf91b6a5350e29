package store

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

const (
	base36 = "0123456789abcdefghijklmnopqrstuvwxyz"
	base62 = base36 + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// randomText returns n random characters of an alphabet.
func randomText(alphabet string, n int) string {
	buf := make([]byte, n)
	_, _ = rand.Read(buf) // never fails
	for i, b := range buf {
		buf[i] = alphabet[int(b)%len(alphabet)]
	}
	return string(buf)
}

// The IDs have the service's forms. Clients treat them as opaque.
func newSessionID() string  { return "sbx_" + randomText(base62, 28) }
func newSnapshotID() string { return "snap_" + randomText(base62, 28) }
func newDriveID() string    { return "drv_" + randomText(base62, 28) }
func newSubdomain() string  { return "sb-" + randomText(base36, 12) }
func newToken() string      { return strings.ToLower(rand.Text()) }

// NewName returns a name for a sandbox that was created without one.
func NewName() string { return "sandbox-" + randomText(base36, 12) }

// NewRequestID returns the ID of a request.
func NewRequestID() string { return "emu1::" + randomText(base36, 16) }

func newCommandID() string {
	buf := make([]byte, 14)
	_, _ = rand.Read(buf) // never fails
	return "cmd_" + hex.EncodeToString(buf)
}
