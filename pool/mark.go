package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/own"
)

// stateDir returns the directory, in a sandbox's working directory, that holds the
// sandbox's state in the pool. Its name contains the sandbox's name, so that a copy of
// the sandbox has no state.
//
// A running sandbox is ready once the directory exists. The process that creates the
// directory "taken" in it takes the sandbox.
//
// The directory of a stopped sandbox contains after-SESSION if the sandbox is ready
// once that session has ended, or taken-SESSION if it is taken in that session. The
// process that renames the first to the second takes the sandbox. Until the session
// that made it ready ends, the sandbox can't be taken, because that session is about to
// be stopped. A sandbox taken in a session that has ended is abandoned.
func stateDir(name string) string { return ".sandbox-pool-" + name }

// commandMode is a mode with which Mkdir runs a command in the sandbox. If the response
// is lost, the client finds the command by its ID and learns whether the claim succeeded.
const commandMode fs.FileMode = 0o700

// claimResult is the result of an attempt to claim a sandbox.
type claimResult int

const (
	notClaimed claimResult = iota // another process has taken it or is creating it
	claimed                       // it was ready, and this process has now taken it
	abandoned                     // its process left it taken or not ready, so it must be deleted
)

const (
	// Only one of several concurrent renames succeeds.
	claimScript = `d=$1 s=$2
for old in "$d"/after-* "$d"/taken-*; do
	case $old in *-"$s" | *'-*') continue ;; esac
	mv -T -- "$old" "$d/taken-$s" 2>/dev/null || exit 1
	case $old in */after-*) exit 0 ;; esac
	exit 3
done
[ ! -e "$d" ] && mkdir -- "$d" "$d/taken-$s" && exit 3
exit 1`
	readyScript = `d=$1 s=$2
mkdir -p -- "$d" && { rm -d -- "$d"/* 2>/dev/null; mkdir -- "$d/after-$s"; }`
)

// withTimeout limits how long the pool waits for programs of a sandbox. Code in a sandbox
// that was taken before may have replaced them with ones that never exit.
func (p *Pool) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(p.opts.Lease, 30*time.Second))
}

func runScript(ctx context.Context, session *sandbox.Session, sb *sandbox.Sandbox, text string) (exitCode int, err error) {
	result, err := own.Run(ctx, session, &sandbox.CommandOptions{Cwd: "/"}, "sh", "-c", text, "sh", path.Join(sb.Cwd(), stateDir(sb.Name())), session.ID())
	if err != nil {
		return 0, err
	}
	return result.ExitCode, nil
}

// claimMark tries to mark a running sandbox as taken, with one request.
func (p *Pool) claimMark(ctx context.Context, sb *sandbox.Sandbox) (claimResult, error) {
	session := sb.CurrentSession()
	if session == nil {
		return notClaimed, sandbox.ErrStopped
	}
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	if !p.opts.Stopped {
		err := session.FS().Mkdir(ctx, stateDir(sb.Name())+"/taken", commandMode)
		switch {
		case err == nil:
			return claimed, nil
		case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
			return notClaimed, nil
		}
		return notClaimed, err
	}
	code, err := runScript(ctx, session, sb, claimScript)
	if err != nil {
		return notClaimed, err
	}
	switch code {
	case 0:
		return claimed, nil
	case 3:
		return abandoned, nil
	}
	return notClaimed, nil
}

// markReady marks a sandbox as ready. The sandbox is new, or this process has taken it.
func (p *Pool) markReady(ctx context.Context, sb *sandbox.Sandbox) error {
	session := sb.CurrentSession()
	if session == nil {
		return sandbox.ErrStopped
	}
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	if !p.opts.Stopped {
		err := session.FS().Mkdir(ctx, stateDir(sb.Name()), commandMode)
		if errors.Is(err, fs.ErrExist) {
			err = session.FS().Remove(ctx, stateDir(sb.Name())+"/taken")
		}
		return err
	}
	code, err := runScript(ctx, session, sb, readyScript)
	if err == nil && code != 0 {
		err = fmt.Errorf("pool: %q can't be marked as ready: exit code %d", sb.Name(), code)
	}
	return err
}

// isUnclaimed reports whether a running sandbox is ready and not taken.
func (p *Pool) isUnclaimed(ctx context.Context, sb *sandbox.Sandbox) bool {
	session := sb.CurrentSession()
	if session == nil {
		return false
	}
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	entries, err := session.FS().ReadDir(ctx, stateDir(sb.Name()))
	return err == nil && len(entries) == 0
}
