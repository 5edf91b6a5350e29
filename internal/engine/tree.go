package engine

import (
	"context"
	"errors"
	"hash/crc32"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
)

// ErrChildren matches the error of a signal that has reached the process alone.
var ErrChildren = errors.New("the signal has reached the process alone, not its children")

// TreeGrace is how long a signal to a process and its children may take after
// its context has ended: the process is not left stopped.
const TreeGrace = time.Second

// Turns lets one caller at a time have a session's stopped process: two that are
// stopped can hardly be told from each other.
type Turns [32]chan struct{}

// NewTurns returns turns that are free.
func NewTurns() *Turns {
	t := &Turns{}
	for i := range t {
		t[i] = make(chan struct{}, 1)
	}
	return t
}

// Take waits until it is the caller's turn, and returns how to end it.
func (t *Turns) Take(ctx context.Context, session string) (end func(), err error) {
	turn := t[crc32.ChecksumIEEE([]byte(session))%uint32(len(t))]
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, api.ContextError(ctx)
	}
}

// TreeScript sends the signal $1 to a process that is stopped and to all that
// descend from it, which it stops first, so that none is missed because it was
// just made, and lets them continue. $2 and what follows are the name and the
// arguments that the process was started with. It prints how many it reached.
//
// The process is found as a child of the service, as this script is, that is
// stopped, or that SIGSTOP waits for: on a busy machine, or while it waits for
// the kernel, a process stops long after the signal was sent. From then on it
// makes no children. If there are several, its command line decides. Exit code 3
// says that it was not found, 4 that it can't be told from others, and 5 that a
// process may not be signaled.
const TreeScript = `sig=$1; shift
[ -r /proc/self/stat ] || exit 3
stat() { { IFS= read -r line < "/proc/$1/stat"; } 2>/dev/null || return; set -- ${line##*) }; state=$1 parent=$2; }
send() { kill -"$1" "$2" 2>/dev/null || sudo -n kill -"$1" "$2" 2>/dev/null || ! stat "$2" || [ "$state" = Z ]; }
command_line() { tr '\000' '\n' < "/proc/$1/cmdline" 2>/dev/null; }
stopping() {
	{ while read -r key value; do
		[ "$key" != ShdPnd: ] || case $value in *[4-7c-f]????) return 0;; *) return 1;; esac
	done < "/proc/$1/status"; } 2>/dev/null
	return 1
}
look() {
	stopped= n=0
	for dir in /proc/[0-9]*; do
		pid=${dir#/proc/}
		stat "$pid" && [ "$parent" = "$PPID" ] || continue
		case $state in [Tt]) ;; [RD]) stopping "$pid" || continue;; *) continue;; esac
		stopped="$stopped $pid" n=$((n+1))
	done
	[ $n -gt 0 ]
}
for try in 1 2 3 4 5 6 7 8 9 10; do
	look && break
	sleep 0.05 2>/dev/null || sleep 1
done
if [ $n -gt 1 ]; then
	want=$(printf '%s\n' "$@") all=$stopped stopped= n=0
	for pid in $all; do
		[ "$(command_line "$pid")" = "$want" ] || continue
		stopped="$stopped $pid" n=$((n+1))
	done
	[ $n -le 1 ] || exit 4
fi
[ $n = 1 ] || exit 3
tree=" ${stopped# } " grown=1
while [ -n "$grown" ]; do
	grown=
	for dir in /proc/[0-9]*; do
		pid=${dir#/proc/}
		case $tree in *" $pid "*) continue;; esac
		stat "$pid" && [ "$state" != Z ] || continue
		case $tree in *" $parent "*) ;; *) continue;; esac
		send STOP "$pid" || exit 5
		tree="$tree$pid " grown=1
	done
done
n=0
for pid in $tree; do send "$sig" "$pid" || exit 5; n=$((n+1)); done
[ "$sig" = 9 ] || for pid in $tree; do send CONT "$pid"; done
echo $n`
