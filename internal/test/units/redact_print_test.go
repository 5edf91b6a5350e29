package units_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/internal/redact"
)

type holder struct {
	Name  string
	Token string            `secret:"value"`
	Env   []string          `secret:"names"`
	Other map[string]string `secret:"names"`
	Page  string            `secret:"url"`
}

func (h holder) Format(f fmt.State, verb rune) { redact.Struct(f, verb, h) }

// TestPrintedStruct: with every verb, a field with a tag shows the documented part, and no
// secret.
func TestPrintedStruct(t *testing.T) {
	full := holder{"n", "s3cret", []string{"B=s3cret", "A=s3cret", "A=s3cret", "C"}, map[string]string{"y": "s3cret", "x": "s3cret"}, "https://u:s3cret@example.com/p?q=s3cret"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		for _, v := range []any{full, &full, []holder{full}, map[string]any{"k": full}} {
			text := fmt.Sprintf(verb, v)
			assert.NotContains(t, text, "s3cret", verb)
			assert.NotContains(t, text, "PANIC", verb)
		}
	}
	text := fmt.Sprint(full)
	assert.Contains(t, text, "[A B C]", "the names of a list")
	assert.Contains(t, text, "[x y]", "the keys of a map")
	assert.Contains(t, text, "https://example.com/p")
	empty := fmt.Sprint(holder{})
	assert.NotContains(t, empty, redact.Mark, "there is nothing to hide: %s", empty)
	assert.NotContains(t, empty, "PANIC")
}
