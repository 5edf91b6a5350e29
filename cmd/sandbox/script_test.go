package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestScripts runs the scripts in testdata/script, each with its own emulator.
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
			w := &worker{}
			e.Defer(w.end)
			e.Values["worker"] = scriptWorker{w, e.Vars}
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
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"mode": mode, "cli": inScript},
	})
}

// scriptWorker is the worker of a script, with the variables that the script started with.
type scriptWorker struct {
	*worker
	env []string
}

// setInScript matches the variables that a script sets.
var setInScript = regexp.MustCompile(`(?m)^env (\w+)=`)

// inScript implements the command cli of scripts, which runs a command line in a worker.
// The line must not read standard input or run in parallel with others.
func inScript(ts *testscript.TestScript, neg bool, args []string) {
	w, _ := ts.Value("worker").(scriptWorker)
	got, err := outcome{}, error(nil)
	if needs.Slow() {
		err = ts.Exec("sandbox", args...)
		if _, exited := errors.AsType[*exec.ExitError](err); exited {
			got.code, err = 1, nil
		}
	} else {
		var env []string
		script, readErr := os.ReadFile(filepath.Join("testdata/script", ts.Name()+".txt"))
		ts.Check(readErr)
		for _, v := range w.env {
			name, _, _ := strings.Cut(v, "=")
			env = append(env, name+"="+ts.Getenv(name))
		}
		for _, found := range setInScript.FindAllStringSubmatch(string(script), -1) {
			if v := ts.Getenv(found[1]); v != "" {
				env = append(env, found[1]+"="+v)
			}
		}
		if got, err = w.run(env, workerLine{Args: args, Dir: ts.MkAbs(".")}); err == nil {
			fmt.Fprint(ts.Stdout(), got.stdout)
			fmt.Fprint(ts.Stderr(), got.stderr)
		}
	}
	ts.Check(err)
	if failed := got.code != 0; failed != neg {
		ts.Fatalf("the exit code is %d\n%s", got.code, got.stderr)
	}
}

// mode implements mode 755 NAME, which checks the permissions of a file.
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
