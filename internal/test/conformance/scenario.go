package conformance

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Scenario is a recorded list of calls, with the script of the server's responses.
type Scenario struct {
	Name        string                     `json:"name"`
	Area        string                     `json:"area"`
	About       string                     `json:"about"`
	Note        string                     `json:"note"`
	JSOnly      bool                       `json:"jsOnly"`
	TTY         bool                       `json:"tty"`
	Order       string                     `json:"order"`
	Env         map[string]string          `json:"env"`
	Files       map[string]json.RawMessage `json:"files"`
	Tokens      map[string]TokenSpec       `json:"tokens"`
	Credentials object                     `json:"credentials"`
	Steps       []Step                     `json:"steps"`
	Server      []Exchange                 `json:"server"`
}

// anyOrder reports whether calls run at the same time, so that their requests have no fixed
// order.
func (s *Scenario) anyOrder() bool { return s.Order == "any" }

// TokenSpec describes the claims of a token. ExpIn is its lifetime.
type TokenSpec struct {
	Claims map[string]json.RawMessage `json:"claims"`
	ExpIn  *float64                   `json:"expIn"`
}

// Step is one call.
type Step struct {
	Op   string          `json:"op"`
	On   *string         `json:"on"`
	Save string          `json:"save"`
	Args json.RawMessage `json:"args"`
	// Credentials replaces the scenario's credentials if it is present. The JSON null stands
	// for no credentials.
	Credentials json.RawMessage `json:"credentials"`
	Abort       *AbortSpec      `json:"abort"`
	MinMs       *float64        `json:"minMs"`
	MaxMs       *float64        `json:"maxMs"`
	Background  bool            `json:"background"`
}

// AbortSpec says when the driver cancels the context of a call.
type AbortSpec struct {
	Before   bool     `json:"before"`
	WhenSeen int      `json:"whenSeen"`
	PlusMs   *float64 `json:"plusMs"`
}

// Exchange is one request that the server expects, and its response.
type Exchange struct {
	On    string            `json:"on"`
	Query map[string]string `json:"query"`
	Body  object            `json:"body"`
	Times *int              `json:"times"`

	Status        int               `json:"status"`
	JSON          json.RawMessage   `json:"json"`
	Text          *string           `json:"text"`
	Base64        *string           `json:"base64"`
	Bytes         *ByteSpec         `json:"bytes"`
	NDJSON        []json.RawMessage `json:"ndjson"`
	Chunks        []ByteSpec        `json:"chunks"`
	Headers       object            `json:"headers"`
	DelayMs       float64           `json:"delayMs"`
	Drop          bool              `json:"drop"`
	CutAfterBytes *int              `json:"cutAfterBytes"`
	Hold          bool              `json:"hold"`
}

// ByteSpec describes the content of a file or a part of a response.
type ByteSpec struct {
	UTF8    *string         `json:"utf8"`
	Base64  *string         `json:"base64"`
	Repeat  *string         `json:"repeat"`
	Count   int             `json:"count"`
	JSON    json.RawMessage `json:"json"`
	DelayMs *float64        `json:"delayMs"`
}

// Bytes returns the described bytes.
func (b *ByteSpec) Bytes() []byte {
	switch {
	case b.UTF8 != nil:
		return []byte(*b.UTF8)
	case b.Base64 != nil:
		return decodeBase64(*b.Base64)
	case b.Repeat != nil:
		return []byte(strings.Repeat(*b.Repeat, b.Count))
	default:
		return compactJSON(b.JSON)
	}
}

// Load reads a scenario and replaces each {{NAME}} in it. It also returns the names and their
// values. It replaces them in the JSON text, so that the order of keys and the spelling of
// numbers in responses stay the same.
func Load(path, home, cwd string, now time.Time) (Scenario, map[string]string) {
	raw := must(os.ReadFile(path))
	vars := map[string]string{"HOME": home, "CWD": cwd}
	for name, spec := range decoded[struct{ Tokens map[string]TokenSpec }](raw).Tokens {
		vars[name] = spec.token(name, now)
	}
	return decoded[Scenario](Substitute(raw, vars)), vars
}

// token returns the unsigned token that the specification describes.
func (t TokenSpec) token(name string, now time.Time) string {
	claims := map[string]json.RawMessage{}
	maps.Copy(claims, t.Claims)
	if t.ExpIn != nil {
		claims["exp"] = must(json.Marshal(float64(now.Unix()) + *t.ExpIn))
	}
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + enc(must(json.Marshal(claims))) + ".sig" + name
}

var nameInBraces = regexp.MustCompile(`\{\{(\w+)\}\}`)

// Substitute replaces every {{NAME}} in a JSON text by its value.
func Substitute(text []byte, vars map[string]string) []byte {
	return nameInBraces.ReplaceAllFunc(text, func(m []byte) []byte {
		v, ok := vars[string(m[2:len(m)-2])]
		if !ok {
			return m
		}
		quoted, _ := json.Marshal(v)
		return quoted[1 : len(quoted)-1]
	})
}

// Unsubstitute replaces each value of vars in v by its {{NAME}}. It replaces longer values first.
func Unsubstitute(v any, vars map[string]string) any {
	names := slices.SortedFunc(maps.Keys(vars), func(a, b string) int {
		return cmp.Or(len(vars[b])-len(vars[a]), strings.Compare(a, b))
	})
	name := func(_ string, v any) (any, bool) {
		if text, ok := v.(string); ok {
			for _, n := range names {
				text = strings.ReplaceAll(text, vars[n], "{{"+n+"}}")
			}
			v = text
		}
		return v, true
	}
	v, _ = name("", v)
	return mapped(v, name)
}

// LayOut writes the local files of the scenario.
func (s *Scenario) LayOut() {
	for path, content := range s.Files {
		data := compactJSON(content)
		var text string
		if json.Unmarshal(content, &text) == nil {
			data = []byte(text)
		}
		check(os.MkdirAll(filepath.Dir(path), 0o755))
		check(os.WriteFile(path, data, 0o644))
	}
}

// decodeBase64 decodes base64 with or without padding, like Node.
func decodeBase64(s string) []byte {
	return must(base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "=")))
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// present reports whether a JSON value exists, even if it is null.
func present(raw json.RawMessage) bool { return len(raw) > 0 }

// isNull reports whether a value is absent or the JSON null.
func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
