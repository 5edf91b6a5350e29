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
