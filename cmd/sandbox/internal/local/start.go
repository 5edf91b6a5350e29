package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/inherited"
	"github.com/go-vercel/sandbox/internal/private"
)

// Start connects to the daemon of a directory. If none runs, it starts one by running
// this program with args.
func Start(ctx context.Context, dir string, args ...string) (*Connection, error) {
	if err := private.Dir(dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var ended chan *os.ProcessState
	spawned := 0
	for {
		c, err := Use(ctx, dir)
		if err == nil {
			c.Started = c.Address.PID == spawned
			if !c.Started && ended != nil {
				// Wait for a superfluous daemon to notice that another one runs.
				// Otherwise it could replace that one when it ends.
				select {
				case <-ended:
				case <-ctx.Done():
				}
			}
			return c, nil
		}
		if !errors.Is(err, ErrNone) {
			return nil, err
		}
		if ended == nil {
			if spawned, ended, err = spawn(dir, args); err != nil {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the local emulator did not start: %w\n%s", context.Cause(ctx), logTail(dir))
		case state := <-ended:
			if !state.Success() && state.ExitCode() != exitInUse {
				return nil, fmt.Errorf("the local emulator did not start: %s\n%s", state, logTail(dir))
			}
			ended = nil // another daemon starts, or is about to end: try again
			time.Sleep(pollInterval)
		case <-time.After(pollInterval):
		}
	}
}

// ownPath is the PATH of the daemon and of its sandboxes. It does not depend on the
// process that starts the daemon.
var ownPath = map[string]string{
	"darwin": "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
	"linux":  "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}[runtime.GOOS]

// ownEnvironment are the variables that the daemon inherits: those that name its user and
// the user's folders.
var ownEnvironment = []string{"HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}

// environment returns the environment of the daemon.
func environment() []string {
	if ownPath == "" {
		return os.Environ()
	}
	own := []string{"PATH=" + ownPath}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); slices.Contains(ownEnvironment, name) {
			own = append(own, v)
		}
	}
	return own
}

// spawn starts a daemon that outlives this process. The channel receives its end.
func spawn(dir string, args []string) (pid int, end chan *os.ProcessState, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, LogName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, environment(), log, log, detached()
	inherited.Close(cmd)
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	ended := make(chan *os.ProcessState, 1)
	go func() {
		_ = cmd.Wait() // ProcessState has the exit code
		ended <- cmd.ProcessState
	}()
	return cmd.Process.Pid, ended, nil
}

func logTail(dir string) string {
	data, _ := os.ReadFile(filepath.Join(dir, LogName)) // without a log, the result is empty
	return strings.TrimSpace(string(data[max(0, len(data)-2000):]))
}
