package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestScripts runs the scripts of testdata/script, each against an emulator of
// its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			server, err := sandboxtest.NewServer(nil)
			if err != nil {
				return err
			}
			e.Defer(func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})
			c := server.Credentials()
			e.Setenv("VERCEL_SANDBOX_BASE_URL", server.URL)
			e.Setenv("VERCEL_AUTH_TOKEN", c.Token)
			e.Setenv("SANDBOX_SCOPE", c.TeamID)
			e.Setenv("SANDBOX_PROJECT", c.ProjectID)
			home := filepath.Join(e.WorkDir, ".home")
			if err := os.Mkdir(home, 0o700); err != nil {
				return err
			}
			e.Setenv("HOME", home)
			e.Setenv(asProgram, "1") // the daemon of --local is this program, too
			e.Defer(func() {
				stop := exec.Command(os.Args[0], "local", "stop")
				stop.Env = e.Vars
				if out, err := stop.CombinedOutput(); err != nil {
					t.Errorf("sandbox local stop: %v: %s", err, out)
				}
			})
			return nil
		},
		Condition: func(cond string) (bool, error) {
			program, ok := strings.CutPrefix(cond, "has:")
			if !ok {
				return false, os.ErrInvalid
			}
			_, err := exec.LookPath(program)
			return err == nil, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"mode": mode},
	})
}

// mode checks the permissions of a file: mode 755 NAME.
func mode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mode permissions file")
	}
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := info.Mode().Perm().String(); got != args[0] {
		ts.Fatalf("the mode of %s is %s, not %s", args[1], got, args[0])
	}
}
