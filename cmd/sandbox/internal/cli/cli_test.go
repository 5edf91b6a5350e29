package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// reading returns how a command line is read, as text: the command, its options sorted by
// name, and its arguments.
func reading(t *testing.T, words ...string) (string, error) {
	t.Helper()
	root := testTree(t)
	out, _, err := line.Arrange(root, words)
	if err != nil {
		return "", err
	}
	cmd, rest := root, out
	for len(rest) > 0 && line.Child(cmd, rest[0]) != nil {
		cmd, rest = line.Child(cmd, rest[0]), rest[1:]
	}
	got := slices.Clone(out[:len(out)-len(rest)])
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			got = append(got, "--"+f.Name+"="+f.Value.String())
		}
	})
	return strings.Join(append(append(got, "--"), rest...), " "), nil
}

// TestArrange reads options before the command, between the command and its arguments,
// and after them, and decides what -t means.
func TestArrange(t *testing.T) {
	t.Parallel()
	for _, test := range [][2]string{
		{"--scope t ls", "ls --scope=t --"},
		{"--name x -p 3000 create --silent", "create --name=x --publish-port=3000 --silent=true --"},
		{"--token=t config --project p list c", "config list --project=p --token=t -- c"},
		{"--sudo exec c -- ls", "exec --sudo=true -- c ls"},
		{"exec c --sudo -w /tmp ls -l", "exec --sudo=true --workdir=/tmp -- c ls -l"},
		{"exec c --sudo=false -w=/tmp ls -l", "exec --sudo=false --workdir=/tmp -- c ls -l"},
		{"exec c ls -- -l --help", "exec -- c ls -- -l --help"},
		{"exec -- c ls", "exec -- c ls"},
		{"exec -- -x ls -l", "exec -- -x ls -l"},
		{"exec -- c --sudo ls", "exec -- c --sudo ls"},
		{"exec --sudo -- -x -- -y", "exec --sudo=true -- -x -y"},
		{"exec -w= c ls", "exec --workdir= -- c ls"},
		{"exec -iw= c ls", "exec --interactive=true --workdir= -- c ls"},
		{"exec -eA=1 -iw/ c ls", "exec --env=A=1 --interactive=true --workdir=/ -- c ls"},
		{"exec c --help", "exec --help=true -- c"},
		{"run -t -- ls", "run --tty=true -- ls"},
		{"run -t a=b -it -- ls -t", "run --interactive=true --tag=a=b --tty=true -- ls -t"},
		{"run -e A=1 ls -t", "run --env=A=1 -- ls -t"},
		{"run -ta=b x", "run --tag=a=b -- x"},
		{"run echo --timeout 5m --name=x hello --silent", "run --name=x --timeout=5m -- echo hello --silent"},
		{"run -- echo --timeout 5m", "run -- echo --timeout 5m"},
		{"create -t a=b -t c=d", "create --tag=a=b, c=d --"},
		{"config keep-last-snapshots k -1", "config keep-last-snapshots -- k -1"},
		{"ls --scope T --team T", "ls --scope=T --"},
		{"emulator -v npm test -v", "emulator --verbose=true -- npm test -v"},
		{"cp -r -- -x c:y", "cp --recursive=true -- -x c:y"},
		{"--help", "--help=true --"},
		{"nonsense ls --help", "-- nonsense ls"}, // a help page would hide that there is no such command
		{"nonsense --bogus", "-- nonsense"},
		{"-- ls -a", "ls --all=true --"},
		{"-- -a ls", "-- -a ls"},
		{"", "--"},
	} {
		got, err := reading(t, strings.Fields(test[0])...)
		require.NoError(t, err, test[0])
		assert.Equal(t, test[1], got, test[0])
	}
	for line, why := range map[string]string{
		"ls --scope a --scope b": "only once", "ls --scope a --team b": "only once", "create --name x --name x": "only once", "rm -y x -y": "only once",
		"--name x create --name y": "only once", "run echo --name x --name y": "only once",
		"ls --bogus x": "unknown flag: --bogus", "ls -aX x": "unknown shorthand flag: 'X' in -aX", "--name": "unknown flag: --name",
		"create --name": "needs an argument: --name", "exec -iw": "needs an argument: 'w' in -iw", "ls --all=no": "--all: invalid value",
	} {
		_, err := reading(t, strings.Fields(line)...)
		assert.ErrorContains(t, err, why, line)
	}
}

// TestVariables: every option that sets a variable refuses an invalid form without
// printing what may be its value.
func TestVariables(t *testing.T) {
	a := newApp(nil)
	a.screen.SetStreams("never")
	seen := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		if flag := cmd.Flags().Lookup("env"); flag != nil {
			seen++
			for _, text := range []string{"KEY: hunter2", "KEY hunter2", "=hunter2", "KEY\thunter2"} {
				err := flag.Value.Set(text)
				require.Error(t, err, "%s %q", cmd.CommandPath(), text)
				assert.NotContains(t, err.Error(), "hunter2", cmd.CommandPath())
			}
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(a.rootCommand())
	assert.GreaterOrEqual(t, seen, 4)
}

// FuzzArrange: whatever the words are, those that are not options keep their order, and
// none is added.
func FuzzArrange(f *testing.F) {
	f.Add("--scope", "ls", "-p", "--")
	f.Add("exec", "-it", "--name", "")
	f.Fuzz(func(t *testing.T, w, x, y, z string) {
		a := newApp(nil)
		a.screen.SetStreams("never")
		in := []string{w, x, y, z}
		out, _, err := line.Arrange(a.rootCommand(), slices.Clone(in))
		if err != nil {
			return
		}
		rest := in
		for _, word := range out {
			i := slices.Index(rest, word)
			if i < 0 {
				t.Fatalf("%q became %q", in, out)
			}
			rest = rest[i+1:]
		}
	})
}

// TestCollect pages through listings of any size with any filter.
func TestCollect(t *testing.T) {
	t.Parallel()
	var all []int
	for i := range 137 {
		all = append(all, i)
	}
	requests := 0
	page := func(_ context.Context, limit int, cursor string) (*sandbox.Page[int], error) {
		requests++
		require.LessOrEqual(t, limit, maxPage)
		start := 0
		if cursor != "" {
			var err error
			start, err = strconv.Atoi(cursor)
			require.NoError(t, err)
		}
		end := min(start+limit, len(all))
		p := &sandbox.Page[int]{Items: all[start:end]}
		if end < len(all) {
			p.Next = strconv.Itoa(end)
		}
		return p, nil
	}
	for name, keep := range map[string]func(int) bool{
		"all": func(int) bool { return true }, "few": func(i int) bool { return i%9 == 0 }, "late": func(i int) bool { return i > 120 }, "none": func(int) bool { return false },
	} {
		var want []int
		for _, i := range all {
			if keep(i) {
				want = append(want, i)
			}
		}
		for _, limit := range []int{1, 7, 50, 100, 1000} {
			var got []int
			p := &paging{limit: limit}
			for {
				items, next, err := collect(t.Context(), p, strconv.Itoa, keep, page)
				require.NoError(t, err)
				require.LessOrEqual(t, len(items), limit)
				if next != "" {
					require.Len(t, items, limit, "%s: every page but the last is full", name)
				}
				got = append(got, items...)
				if p.cursor = next; next == "" {
					break
				}
			}
			assert.Equal(t, want, got, "%s, %d at once", name, limit)
		}
	}
}

// TestRemoteShellOptions: rsh accepts the options of ssh after its name, and those of
// this program in both places, like every other command.
func TestRemoteShellOptions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ reader, user, project, words string }{
		{"rsh web rsync --server -o .", "", "", "web rsync --server -o ."},
		{"rsh -l root web id", "root", "", "web id"},
		{"rsh -lroot web id", "root", "", "web id"},
		{"rsh web -l root id -l x", "root", "", "web id -l x"},
		{"rsh -o SendEnv=GIT_PROTOCOL -4 -p 22 -oX=y -Tq web git-upload-pack x", "", "", "web git-upload-pack x"},
		{"--project other rsh web id", "", "other", "web id"},
		{"--project=other rsh web id", "", "other", "web id"},
		{"rsh --project other -l root web id", "root", "other", "web id"},
		{"rsh -l root web --project other id --project x", "root", "other", "web id --project x"},
	} {
		a := newApp(nil)
		root := a.rootCommand()
		words, _, err := line.Arrange(root, strings.Fields(test.reader))
		require.NoError(t, err, test.reader)
		assert.Equal(t, "rsh "+test.words, strings.Join(words, " "), test.reader)
		cmd, _, err := root.Find([]string{"rsh"})
		require.NoError(t, err)
		assert.Equal(t, test.user, cmd.Flag("user").Value.String(), test.reader)
		assert.Equal(t, test.project, a.account.Given.Project, test.reader)
	}
	for _, words := range []string{"rsh", "rsh web", "rsh -l", "rsh -l x web", "rsh --nosuch web id", "rsh -@ web id"} {
		a := newApp(strings.Fields(words))
		assert.ErrorAs(t, a.execute(t.Context(), a.rootCommand()), new(*line.UsageError), words)
	}
}

// TestGlobalOptions: every command accepts the options of all commands before its name
// and after it, and ignores none.
func TestGlobalOptions(t *testing.T) {
	t.Parallel()
	var lines int
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			visit(c)
		}
		if cmd.HasSubCommands() {
			return
		}
		var all []string
		cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { all = append(all, "--"+f.Name+"="+valueOf(f)) })
		path := strings.Fields(cmd.CommandPath())[1:]
		for _, words := range [][]string{slices.Concat(all, path), slices.Concat(path, all, []string{"a", "b"})} {
			root := newApp(nil).rootCommand()
			_, _, err := line.Arrange(root, words)
			require.NoError(t, err, words)
			root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
				if !slices.Contains(all, "--"+f.Name+"="+valueOf(f)) {
					return // the command itself has an option of that name
				}
				assert.True(t, f.Changed, "%s in %v", f.Name, words)
				assert.Equal(t, valueOf(f), f.Value.String(), "%s in %v", f.Name, words)
			})
			lines++
		}
	}
	visit(newApp(nil).rootCommand())
	assert.Greater(t, lines, 100)
}

// valueOf returns a valid value of an option.
func valueOf(f *pflag.Flag) string {
	switch {
	case len(f.Annotations[line.ChoicesAnnotation]) > 0:
		return f.Annotations[line.ChoicesAnnotation][0]
	case f.Value.Type() == "bool":
		return "true"
	case f.Value.Type() == "duration":
		return "5s"
	}
	return "x"
}
