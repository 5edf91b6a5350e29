package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRefusals has what is refused before any request, each with the nearest
// that is not.
func TestRefusals(t *testing.T) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "VERCEL_") || strings.HasPrefix(name, "SANDBOX_") || strings.HasPrefix(name, "XDG_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("VERCEL_SANDBOX_BASE_URL", "http://127.0.0.1:1/api")
	t.Chdir(t.TempDir())
	run := func(line string) string {
		a := newApp(strings.Fields(line))
		return fmt.Sprint(a.execute(t.Context(), a.rootCommand()))
	}
	for _, tc := range []struct{ refused, why, taken string }{
		{"snapshots tree x --sort-order desc", "--sort-order needs --cursor", "snapshots tree x --sort-order desc --cursor c"},
		{"snapshots tree x --sort-order desc", "--sort-order needs --cursor", "snapshots tree x --cursor c"},
		{"exec -i -d x true", "exclude each other", "exec -i x true"},
		{"exec -i --timeout 5s x true", "--timeout can't be used with -i", "exec --timeout 5s x true"},
		{"exec -d --binary x true", "--binary is for commands", "exec --binary x true"},
		{"exec -i -t x true", "needs a terminal", "exec -t x true"},
		{"exec --stdin -d x true", "--stdin excludes", "exec --stdin x true"},
		{"exec --stdin -t x true", "--stdin excludes", "exec --stdin x true"},
		{"exec --stdin -i x true", "--stdin excludes", "exec -i x true"},
		{"exec --stdin --timeout 5s x true", "or --stdin", "exec --stdin x true"},
		{"create --credentials npm,git", "expected one of: npm", "create --credentials npm"},
		{"create --credentials npm,", "expected one of: npm", "create --credentials npm,npm"},
		{"create --network-policy-file=", "it is empty", "create"},
		{"run -i --network-policy-file - true", "both read standard input", "run -i --network-policy deny-all true"},
		{"write x dir/", "needs the name of a file", "write x dir"},
		{"cp - x:dir/..", "needs the name of a file", "cp - x:dir"},
		{"read x", "no value provided for path", "read x y"},
		{"api GET v2/sandboxes", "the path begins with a slash", "api GET /v2/sandboxes"},
		{"sh ls", "takes no command", "sh"},
		{"run --rm --stop true", "--stop", "run --rm true"},
		{"create --connect", "an interactive shell needs a terminal", "create"},
		{"create -p 1023", "invalid port", "create -p 1024"},
		{"create -p 65536", "invalid port", "create -p 65535"},
		{"cp - - x:/f", "one of several sources", "cp - x:/f"},
		{"cp - a x:/f", "one of several sources", "cp a b x:/f"},
		{"url x 80", "invalid port", "url x 8080"},
		{"ls --limit x", "is not a number", "ls --limit 5"},
		{"create --depth x", "is not a number", "create --depth 5"},
		{"create -p x", "invalid port", "create -p 3000"},
		{"--token= ls", "it is empty", "--token t ls"},
		{"ls --profile=", "it is empty", "ls --profile p"},
		{"--api-url= ls", "it is empty", "--api-url http://127.0.0.1:1/api ls"},
	} {
		assert.Contains(t, run(tc.refused), tc.why, tc.refused)
		assert.NotContains(t, run(tc.taken), tc.why, tc.taken)
	}
}
