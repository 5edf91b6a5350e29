package sandbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
)

// Env holds environment variables. A map literal can be assigned to it. Its
// values are never printed, logged or marshaled, only the names.
type Env map[string]string

// Format prints the names, for every verb.
func (e Env) Format(f fmt.State, verb rune) {
	redact.String(f, verb, "["+strings.Join(slices.Sorted(maps.Keys(e)), " ")+"]")
}

// MarshalJSON encodes the names with redacted values.
func (e Env) MarshalJSON() ([]byte, error) {
	shown := make(map[string]string, len(e))
	for k := range e {
		shown[k] = redact.Mark
	}
	return json.Marshal(shown)
}

// DefaultRegion is where the platform creates sandboxes and drives by default.
const DefaultRegion = "iad1"

// The images that the platform maintains, for [CreateOptions.Image]. Without an
// image and a runtime, a sandbox uses ImageUniversal. In all of them the user
// is ubuntu, with sudo, and the working directory is /vercel. Other images are
// named by their reference in the project's registry.
const (
	ImageUniversal = "vercel/sandbox/universal"
	ImageNode26    = "vercel/sandbox/node:26"
	ImageNode24    = "vercel/sandbox/node:24"
	ImageNode22    = "vercel/sandbox/node:22"
	ImagePython314 = "vercel/sandbox/python:3.14"
	ImageUbuntu    = "vercel/sandbox/ubuntu"
	ImageArch      = "vercel/sandbox/arch"
)
