package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// TestArrange moves options to between the command and its arguments, and
// settles what -t means.
func TestArrange(t *testing.T) {
	t.Parallel()
	for _, test := range [][2]string{
		{"--scope t ls", "ls --scope t"},
		{"--name x -p 3000 create --silent", "create --name x -p 3000 --silent"},
		{"--token=t config --project p list c", "config list --token=t --project p c"},
		{"--sudo exec c -- ls", "exec --sudo -- c ls"},
		{"exec c --sudo -w /tmp ls -l", "exec --sudo -w /tmp -- c ls -l"},
		{"exec c ls -- -l --help", "exec -- c ls -- -l --help"},
		{"exec -- c ls", "exec -- c ls"},
		{"exec -- -x ls -l", "exec -- -x ls -l"},
		{"exec -- c --sudo ls", "exec -- c --sudo ls"},
		{"exec --sudo -- -x -- -y", "exec --sudo -- -x -y"},
		{"exec -w= c ls", "exec --workdir= -- c ls"},
		{"exec -iw= c ls", "exec --interactive --workdir= -- c ls"},
		{"exec -ew= c ls", "exec -ew= -- c ls"},
		{"exec c --help", "exec --help -- c"},
		{"run -t -- ls", "run --tty -- ls"},
		{"run -t a=b -it -- ls -t", "run --tag a=b --interactive --tty -- ls -t"},
		{"run -e A=1 ls -t", "run -e A=1 -- ls -t"},
		{"run -ta=b x", "run --tag a=b -- x"},
		{"run echo --timeout 5m --name=x hello --silent", "run --timeout 5m --name=x -- echo hello --silent"},
		{"run -- echo --timeout 5m", "run -- echo --timeout 5m"},
		{"create -t a=b -t c=d", "create -t a=b -t c=d"},
		{"rollback c -2", "rollback -- c -2"},
		{"config keep-last-snapshots k -1", "config keep-last-snapshots -- k -1"},
		{"ls --scope T --team T", "ls --scope T"},
		{"emulator -v npm test -v", "emulator -v -- npm test -v"},
		{"cp -r -- -x c:y", "cp -r -- -x c:y"},
		{"ls --bogus x", "ls --bogus x"},
		{"ls -ab x", "ls -ab x"},
		{"--help", "--help"},
		{"nonsense ls", "nonsense ls"},
		{"-- ls -a", "ls -a"},
		{"-- -a ls", "-- -a ls"},
		{"--name", "--name"},
		{"create --name", "create --name"},
	} {
		got, _, err := arrange(testTree(t), strings.Fields(test[0]))
		require.NoError(t, err, test[0])
		assert.Equal(t, strings.Fields(test[1]), got, test[0])
	}
	for _, words := range []string{"ls --scope a --scope b", "ls --scope a --team b", "create --name x --name x", "rm -y x -y", "--name x create --name y", "run echo --name x --name y"} {
		_, _, err := arrange(testTree(t), strings.Fields(words))
		assert.ErrorContains(t, err, "only once", words)
	}
}

// FuzzArrange takes any words, and neither loses one nor makes one up, but for a
// -- before the arguments.
func FuzzArrange(f *testing.F) {
	a := newApp(nil)
	a.setStreams("never")
	f.Add("--scope", "ls", "-p", "--")
	f.Add("exec", "-it", "--name", "")
	f.Fuzz(func(t *testing.T, w, x, y, z string) {
		in := []string{w, x, y, z}
		if slices.Contains(in, "run") || slices.Contains(in, "--team") {
			return // these two are written in another way
		}
		dashes := func(word string) bool { return word == "--" }
		out, _, err := arrange(a.rootCommand(), slices.Clone(in))
		if err != nil {
			return
		}
		out = slices.DeleteFunc(out, dashes)
		in = slices.DeleteFunc(in, dashes)
		slices.Sort(in)
		slices.Sort(out)
		if !slices.Equal(in, out) {
			t.Fatalf("%q became %q", in, out)
		}
	})
}

// TestLargePage: a part of a response must not pass for all of it.
func TestLargePage(t *testing.T) {
	t.Parallel()
	_, err := new(apiCommand).jsonPage(bytes.NewReader(make([]byte, maxPageBody+1)))
	require.ErrorContains(t, err, "64 MiB")
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	a := newApp(nil)
	for code, errs := range map[int][]error{
		exitFailure:     {errors.New("x"), &sandbox.APIError{Status: 500}},
		exitUsage:       {usagef("x"), withHint(usagef("x"), "y")},
		exitNotFound:    {&sandbox.APIError{Status: 404}, fs.ErrNotExist},
		exitLogin:       {auth.ErrNoCredentials, &sandbox.APIError{Status: 401}, &sandbox.APIError{Status: 403}},
		exitConflict:    {&sandbox.APIError{Status: 409}, &sandbox.APIError{Operation: "create sandbox", Status: 400, Message: "A sandbox with the name 'x' already exists in this project."}},
		exitTimeout:     {context.DeadlineExceeded},
		exitRateLimit:   {&sandbox.APIError{Status: 429}},
		exitNoProgram:   {&sandbox.APIError{Operation: "run command", Status: 400, Code: "executable_not_found"}},
		exitInterrupted: {context.Canceled},
		exitTerminal:    {&sandbox.ShellError{Err: io.ErrUnexpectedEOF}},
		42:              {&exitError{code: 42, err: errors.New("x")}, fmt.Errorf("wrapped: %w", exitWith(42))},
	} {
		for _, err := range errs {
			assert.Equal(t, code, a.explain(err).exit, "%T %v", err, err)
		}
	}
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
					require.Len(t, items, limit, "%s: a page that is not the last one is full", name)
				}
				got = append(got, items...)
				if p.cursor = next; next == "" {
					break
				}
			}
			assert.Equal(t, want, got, "%s, %d at once", name, limit)
		}
		items, next, err := collect(t.Context(), &paging{noLimit: true}, strconv.Itoa, keep, page)
		require.NoError(t, err)
		assert.Empty(t, next)
		assert.Equal(t, want, items)
	}
}

func TestLocations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]location{
		"-": {path: "-", stream: true}, "a.txt": {path: "a.txt"}, "./a:b": {path: "./a:b"}, "/x/a:b": {path: "/x/a:b"}, `C:\x`: {path: `C:\x`},
		"web:/a": {sandbox: "web", path: "/a"}, "web:a:b": {sandbox: "web", path: "a:b"}, "@:a": {sandbox: "@", path: "a"},
	} {
		got, err := parseLocation(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"web:", ":x", "a b:x", "wéb:x"} {
		_, err := parseLocation(text)
		assert.Error(t, err, text)
	}
	for text, into := range map[string]bool{"web:a/": true, "web:a": false, "web:.": true, "x/": true, "x/.": true, "x": false, ".": true} {
		l, err := parseLocation(text)
		require.NoError(t, err)
		assert.Equal(t, into, l.intoDir(), text)
	}
}

func TestShellWords(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `echo 'a b' '' 'it'\''s' x=1 '$HOME' azAZ09 'a;b'`, shellWords([]string{"echo", "a b", "", "it's", "x=1", "$HOME", "azAZ09", "a;b"}))
}

func TestRemoteShellArgs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args             []string
		user, name, line string
	}{
		{[]string{"web", "rsync", "--server", "."}, "", "web", "rsync --server ."},
		{[]string{"-l", "root", "web", "id"}, "root", "web", "id"},
		{[]string{"-o", "SendEnv=GIT_PROTOCOL", "-4", "-p", "22", "me@web", "git-upload-pack 'x'"}, "me", "web", "git-upload-pack 'x'"},
	} {
		user, name, line, err := remoteShellArgs(test.args)
		require.NoError(t, err)
		assert.Equal(t, test.user, user)
		assert.Equal(t, test.name, name)
		assert.Equal(t, test.line, line)
	}
	for _, args := range [][]string{nil, {"web"}, {"-l"}, {"-l", "x", "web"}} {
		_, _, _, err := remoteShellArgs(args)
		assert.Error(t, err, args)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	p := allowed(sandbox.DenyAll(), []string{"a.com", "b.com"})
	assert.Equal(t, []string{"a.com", "b.com"}, p.Allow)
	p, err := denied(p, []string{"a.com"})
	require.NoError(t, err)
	assert.Equal(t, []string{"b.com"}, p.Allow)
	p, err = denied(p, []string{"b.com"})
	require.NoError(t, err)
	assert.Equal(t, "deny-all", p.Mode)
	_, err = denied(sandbox.AllowAll(), []string{"a.com"})
	assert.Error(t, err)
	assert.Equal(t, "allow-all", allowed(sandbox.AllowAll(), []string{"a.com"}).Mode)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	u := parseUsage("cpu  100 0 100 700 100 0 0 0 0 0\ncpu  150 0 150 750 150 0 0 0 0 0\nMemTotal: 1000 kB\nMemAvailable: 250 kB\n1.50\n" +
		"Inter-|   Receive\n face |bytes\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\n")
	assert.InDelta(t, 50, u.CPU, 0.1)
	assert.EqualValues(t, 750<<10, u.MemoryUsed)
	assert.EqualValues(t, 100, u.Received)
	assert.EqualValues(t, 200, u.Sent)
	assert.InDelta(t, 1.5, u.Load, 0.01)
	assert.Equal(t, usage{}, parseUsage("nothing\n\n: :\n"))
}
