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

// The directory .sandbox-pool-NAME in a sandbox's working directory has the
// sandbox's state. NAME is the sandbox's name, so that a copy of the sandbox has
// no state.
//
// A running sandbox is ready once the directory exists, and belongs to whoever
// makes the directory taken in it.
//
// For a stopped sandbox it contains either after-SESSION, which means that the
// sandbox is ready once that session has ended, or taken-SESSION, which means
// that it is taken in that session. Whoever renames the one to the other takes
// the sandbox. It can't be taken before the session ends that made it ready,
// since that session is about to be stopped. A sandbox taken in a session that
// has ended is abandoned.
func directory(name string) string { return ".sandbox-pool-" + name }

// private is a mode for which Mkdir runs a command. If its response is lost, the
// command is found by its ID, so that it is always known whether the claim
// succeeded.
const private fs.FileMode = 0o700

// state is the outcome of an attempt to claim a sandbox.
type state int

const (
	notOurs   state = iota // another has it, or is making it
	ours                   // it was ready
	abandoned              // another had it, or did not finish it: it is ours to delete
)

const (
	// renaming succeeds for only one of several at a time.
	claimScript = `d=$1 s=$2
for old in "$d"/after-* "$d"/taken-*; do
	case $old in *-"$s" | *'-*') continue ;; esac
	mv -T -- "$old" "$d/taken-$s" 2>/dev/null || exit 1
	case $old in */after-*) exit 0 ;; esac
	exit 3
done
[ ! -e "$d" ] && mkdir -- "$d" "$d/taken-$s" && exit 3
exit 1`
	offerScript = `d=$1 s=$2
mkdir -p -- "$d" && { rm -d -- "$d"/* 2>/dev/null; mkdir -- "$d/after-$s"; }`
)

// A sandbox that was taken before may have replaced the programs run here by ones
// that never end or write without end. Limits keep them from holding up the pool
// and from filling its memory.

// atMost limits how long the pool waits for programs of a sandbox.
func (p *Pool) atMost(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(p.opts.Lease, 30*time.Second))
}

func script(ctx context.Context, session *sandbox.Session, sb *sandbox.Sandbox, text string) (exitCode int, err error) {
	done, err := own.Run(ctx, session, &sandbox.CommandOptions{Cwd: "/"}, "sh", "-c", text, "sh", path.Join(sb.Cwd(), directory(sb.Name())), session.ID())
	if err != nil {
		return 0, err
	}
	return done.ExitCode, nil
}

// mark claims a sandbox that runs, by one request.
func (p *Pool) mark(ctx context.Context, sb *sandbox.Sandbox) (state, error) {
	session := sb.CurrentSession()
	if session == nil {
		return notOurs, sandbox.ErrStopped
	}
	ctx, cancel := p.atMost(ctx)
	defer cancel()
	if !p.opts.Stopped {
		err := session.FS().Mkdir(ctx, directory(sb.Name())+"/taken", private)
		switch {
		case err == nil:
			return ours, nil
		case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
			return notOurs, nil
		}
		return notOurs, err
	}
	code, err := script(ctx, session, sb, claimScript)
	if err != nil {
		return notOurs, err
	}
	switch code {
	case 0:
		return ours, nil
	case 3:
		return abandoned, nil
	}
	return notOurs, nil
}

// unmark marks a sandbox as ready, be it new or taken by this process.
func (p *Pool) unmark(ctx context.Context, sb *sandbox.Sandbox) error {
	session := sb.CurrentSession()
	if session == nil {
		return sandbox.ErrStopped
	}
	ctx, cancel := p.atMost(ctx)
	defer cancel()
	if !p.opts.Stopped {
		err := session.FS().Mkdir(ctx, directory(sb.Name()), private)
		if errors.Is(err, fs.ErrExist) {
			err = session.FS().Remove(ctx, directory(sb.Name())+"/taken")
		}
		return err
	}
	code, err := script(ctx, session, sb, offerScript)
	if err == nil && code != 0 {
		err = fmt.Errorf("pool: %q can't be marked as ready: exit code %d", sb.Name(), code)
	}
	return err
}

// unclaimed reports whether a running sandbox is ready and not taken.
func (p *Pool) unclaimed(ctx context.Context, sb *sandbox.Sandbox) bool {
	session := sb.CurrentSession()
	if session == nil {
		return false
	}
	ctx, cancel := p.atMost(ctx)
	defer cancel()
	entries, err := session.FS().ReadDir(ctx, directory(sb.Name()))
	return err == nil && len(entries) == 0
}
