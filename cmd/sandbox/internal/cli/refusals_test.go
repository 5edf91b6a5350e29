package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// TestRefusals lists command lines that are refused before any request. With each comes the
// most similar line that is accepted.
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
		err := a.execute(t.Context(), a.rootCommand())
		if err == nil {
			return ""
		}
		return fmt.Sprint(err) + ": " + a.screen.Explain(err).Message + "; " + a.screen.Explain(err).Hint
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
		{"create --network-policy-file f --network-policy deny-all", "can't be combined", "create --network-policy deny-all"},
		{"create --network-policy-file f --allowed-domain a.example", "can't be combined", "create --allowed-domain a.example"},
		{"create --network-policy-file f --allowed-cidr 10.0.0.0/8", "can't be combined", "create --allowed-cidr 10.0.0.0/8"},
		{"create --network-policy-file f --denied-cidr 10.0.0.0/8", "can't be combined", "create --denied-cidr 10.0.0.0/8"},
		{"run -i --network-policy-file - true", "both read standard input", "run -i --network-policy deny-all true"},
		{"write x dir/", "needs the name of a file", "write x dir"},
		{"cp - x:dir/..", "needs the name of a file", "cp - x:dir"},
		{"read x", "no value provided for path", "read x y"},
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
		{"ls --team=", "it is empty", "ls --team t"},
		{"--project= ls", "it is empty", "--project p ls"},
		{"ls -q --name-prefix=", "lists everything", "ls --name-prefix="},
		{"snapshots ls --json --name=", "lists everything", "snapshots ls --name="},
		{"drives ls --json --name-prefix=", "lists everything", "drives ls --name-prefix="},
		{"ls -q --tag NOT_SET", "has no value", "ls -q --tag NOT_SET="},
		{"ls -q --tag NOT_SET", "has no value", "ls --tag NOT_SET"},
		{"--api-url= ls", "it is empty", "--api-url http://127.0.0.1:1/api ls"},

		// Lines that the API would refuse.
		{"create --timeout 25h", "is outside", "create --timeout 24h"},
		{"create --name x --vcpus 3", "it must be 1 or an even number", "create --name x --vcpus 4"},
		{"create --name drives", "another meaning", "create --name drive"},
		{"create --upload none", "not found", "create --upload ."},
		{"run --timeout 25h true", "is outside", "run --timeout 24h true"},
		{"run --rm --upload none true", "not found", "run --rm --upload . true"},
		{"fork x --timeout 25h", "is outside", "fork x --timeout 24h"},
		{"fork . --timeout 1h", "can't be the name", "fork x --timeout 1h"},
		{"config timeout x 25h", "is outside", "config timeout x 24h"},
		{"config vcpus x 3", "it must be 1 or an even number", "config vcpus x 4"},
		{"config snapshot-expiration x 1s", "1s is below 24h", "config snapshot-expiration x 1d"},
		{"config keep-last-snapshots-for x 1s", "1s is below 24h", "config keep-last-snapshots-for x 1d"},
		{"snapshot x --expiration 1s", "1s is below 24h", "snapshot x --expiration 1d"},
		{"snapshot x --stop --expiration 1s", "1s is below 24h", "snapshot x --stop --expiration 0"},
		{"extend x 25h", "is outside", "extend x 23h"},
		{"drives get-or-create a/b", "a/b", "drives get-or-create a"},
		{"drives delete a b/c", "can't be the name of a drive", "drives delete a b"},
		{"exec drives true", "another meaning", "exec drive true"},
		{"stop ..", "can't be the name", "stop a"},

		{"create --timeout 90", "did you mean 90s?", "create --timeout 25h"},
		{"extend x 5", "did you mean 5s?", "extend x 25h"},
		{"kill -9 x cmd_x", "-s 9 sends that signal", "kill -s 9 x cmd_x"},
		{"create -e FOO:", "use NAME=VALUE", "create -e FOO"},
		{"create --env-file none", "--env-file: ", "create"},
		{"rm *", "letters, digits, - and _", "rm x-_1"},
		{"rm a,b", "separate names by spaces", "rm a b"},
		{"exec sandbox:m2 true", "can't be the name of a sandbox", "exec m2 true"},
		{"lst", "did you mean list?", "ls"},
		{"create --keep-last-snapshots x", ": invalid count", "create --keep-last-snapshots 1"},
		{"exec x printf \xff", "an argument of the command", "exec x printf é"},
		{"delete x", "did you mean remove?", "remove x"},
		{"rm --status stopped, --yes", "expected one of: running", "rm --status stopped --yes"},
		{"ls --json -q", "exclude each other", "ls --json"},
		{"port-forward x 80 --address=", "it is empty", "port-forward x 80 --address ::1"},
		{"exec x printf \xff", "not valid UTF-8", "exec x printf é"},
		{"exec x -w \xff true", "not valid UTF-8", "exec x -w /tmp true"},
		{"exec x -u a/b true", "username", "exec x -u a-b true"},
		{"run -e A=\xff true", "not valid UTF-8", "run -e A=é true"},
		{"run -u A true", "username", "run -u a true"},
		{"run --name x -w /a printf \xff", "not valid UTF-8", "run --name x -w /a true"},
	} {
		assert.Contains(t, run(tc.refused), tc.why, tc.refused)
		assert.NotContains(t, run(tc.taken), tc.why, tc.taken)
	}
}

// mayBeEmpty lists the options for which an empty value has a meaning, as in the official
// CLI. All other options refuse an empty value.
var mayBeEmpty = []string{
	"--name of create", "--name of run", "--name of sh", "--name of fork", "--image of create", "--image of run", "--image of sh",
	"--workdir of exec", "--workdir of run", "--workdir of connect", "--name-prefix of list", "--name-prefix of drives list", "--name of snapshots list",
	"--cursor of list", "--cursor of sessions list", "--cursor of snapshots list", "--cursor of snapshots tree", "--cursor of drives list",
}

// TestEmpty: an empty argument, as from an unset variable, selects nothing and opens
// nothing.
func TestEmpty(t *testing.T) {
	t.Parallel()
	var taken []string
	check := func(f *pflag.Flag, of string) {
		if f.Name != "help" && f.Value.Set("") == nil {
			taken = append(taken, "--"+f.Name+of)
		}
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		words := strings.TrimPrefix(cmd.CommandPath(), "sandbox ")
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { check(f, " of "+words) })
		for _, c := range cmd.Commands() {
			visit(c)
		}
		if _, foreign := cmd.Annotations[line.OwnWords]; !foreign {
			assert.ErrorContains(t, newApp(nil).prepare(cmd, []string{"a", ""}), "empty", words)
		}
	}
	root := testTree(t)
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { check(f, "") })
	visit(root)
	assert.ElementsMatch(t, mayBeEmpty, taken)
}
