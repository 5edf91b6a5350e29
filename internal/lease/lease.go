// Package lease is a lock in a sandbox: of all processes that want to do
// something in it, on whatever machines, one does it, and the others wait until
// it is done or take over from one that has died.
//
// A lock is a directory of the sandbox that is named by its key. Its states are
// the symbolic links 1, 2, 3 and so on in it: the link with the highest number is
// the state now, and to change it is to make the next link. The file system makes
// a link only if there is none of that name, together with what it says, so each
// state follows from one that its maker has seen. Who has made the next link takes
// away the ones before, and looks then whether it is the last: one that was late
// may have made again what was taken away, which is no state. (mkdir is as atomic,
// but a directory has no content at first, and who died there would never release
// it.) Time is the sandbox's, so that the clocks of the processes don't matter.
//
// A state names its maker, one attempt: what one has put whose response was lost,
// or not awaited, is still one's own.
//
// What follows the last dash of a key names the session, or the sandbox, that it
// is for. Who takes a key removes the locks of its kind, which is what comes before
// the first dash, that are for others: those have ended.
//
// Programs in the sandbox can change the lock as they can change everything else
// in it: it keeps well-meaning clients apart.
package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Runner runs a script of sh in the sandbox, and returns what it wrote to standard
// output. A non-zero exit code is an error.
type Runner func(ctx context.Context, script string, args ...string) (string, error)

// Options are the options of Take.
type Options struct {
	// Owner names the one attempt that this is, in letters and digits: who asks
	// again by that name, after a lost response, gets the same lease.
	Owner string
	// Term is how long a lease lasts unless it is renewed: at least three seconds,
	// as the sandbox's clock is read in seconds.
	Term time.Duration
}

// ErrLost reports that the lease has run out, or that another has taken over.
var ErrLost = errors.New("the lease of the lock in the sandbox has ended")

// Lease is the right to do what a key stands for. One goroutine uses it at a time,
// Keep's until it is stopped.
type Lease struct {
	// Key is what the lease is for.
	Key string

	run   Runner
	owner string
	term  time.Duration
	until time.Time // when it ends, at the earliest
}

// common finds the place of locks, which lasts as long as the sandbox's files,
// and another one where there is no home that can be written. It has the number
// of the last state of a lock, and takes away the states before one.
const common = `umask 077
root=${HOME:-/tmp}/.go-sandbox
{ mkdir -p "$root" && [ -w "$root" ]; } 2>/dev/null || root=/tmp/.go-sandbox
last() {
	n=0
	for link in "$dir"/[0-9]*; do
		[ -h "$link" ] && [ "${link##*/}" -gt "$n" ] 2>/dev/null && n=${link##*/}
	done
}
make() {
	next=$((n+1))
	ln -s "$1.$owner.$((now+term))" "$dir/$next" 2>/dev/null
	made=$?
	last
	[ "$n" -ge "$next" ] || { echo "cannot write to $dir" >&2; exit 1; }
	[ $made = 0 ] && [ "$n" = "$next" ] || return 1
	for link in "$dir"/[0-9]*; do
		[ "${link##*/}" -ge "$n" ] 2>/dev/null || rm -f "$link"
	done
}
`

const takeScript = common + `owner=$1 term=$2 end=$(( $(date +%s) + $3 )); shift 3
for key; do
	dir=$root/$key
	mkdir -p "$dir" || exit 1
	while :; do
		state= now=$(date +%s)
		last
		[ "$n" = 0 ] || state=$(readlink "$dir/$n") || continue
		case $state in
		done.*) break;;
		held."$owner".*) echo "taken $key"; exit;;
		held.*) if [ "$now" -le "${state##*.}" ]; then
				[ "$now" -lt "$end" ] || { echo "held $key"; exit; }
				sleep 0.2 2>/dev/null || sleep 1
				continue
			fi;;
		esac
		make held || continue
		for other in "$root/${key%%-*}"-*; do
			case $other in *-"${key##*-}") ;; *) rm -rf "$other";; esac
		done
		echo "taken $key"
		exit
	done
done
echo done`

const putScript = common + `key=$1 owner=$2 state=$3 term=$4
dir=$root/$key now=$(date +%s)
while :; do
	last
	[ "$n" != 0 ] || { echo lost; exit; }
	is=$(readlink "$dir/$n") || continue
	case $is in
	held."$owner".*)
		if make "$state" || [ "$state$made" = free0 ]; then # the next may have it by now
			echo put
			exit
		fi;;
	"$state.$owner".*) echo put; exit;;
	*) echo lost; exit;;
	esac
done`

// longestWait is how long one command waits for another's lease.
const longestWait = 10 * time.Second

// clockSlack is by how much less the script may wait, as it counts in seconds.
const clockSlack = 2 * time.Second

// Take returns a lease of the first of the keys that is not done. It returns nil
// if all of them are done, and waits while another holds one. Each attempt is one
// command, which waits in the sandbox for at most ten seconds.
func Take(ctx context.Context, run Runner, o Options, keys ...string) (*Lease, error) {
	for {
		begin := time.Now()
		args := append([]string{o.Owner, seconds(o.Term), seconds(longestWait)}, keys...)
		out, err := run(ctx, takeScript, args...)
		if err != nil {
			return nil, err
		}
		what, key, _ := strings.Cut(strings.TrimSpace(out), " ")
		switch {
		case what == "done" && key == "":
			return nil, nil
		// A key of its own choice would be one of another sandbox's hooks.
		case what != "taken" && what != "held" || !slices.Contains(keys, key):
			return nil, fmt.Errorf("the lock in the sandbox can't be read: %.100q", out)
		case what == "taken":
			// It may have begun at any time since.
			return &Lease{Key: key, run: run, owner: o.Owner, term: o.Term, until: begin.Add(o.Term)}, nil
		}
		// The script has waited, unless something stands in its place.
		select {
		case <-time.After(time.Until(begin.Add(longestWait - clockSlack))):
		case <-ctx.Done(): // of which run tells
		}
	}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// Keep renews the lease, in a goroutine, until stop is called, which gives up a
// renewal that hangs. The context that it returns ends with ctx, and with ErrLost
// as its cause when the lease does.
func (l *Lease) Keep(ctx context.Context) (kept context.Context, stop func()) {
	kept, lose := context.WithCancelCause(ctx)
	renewing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-time.After(l.term / 3):
			case <-renewing.Done():
				return
			}
			attempt, cancel := context.WithDeadline(renewing, l.until)
			err := l.put(attempt, "held")
			cancel()
			if errors.Is(err, ErrLost) || !time.Now().Before(l.until) {
				lose(ErrLost)
				return
			}
		}
	}()
	return kept, func() {
		cancel()
		<-done
		lose(context.Canceled)
	}
}

// Done records that what the key stands for need not be done again. The error
// is ErrLost if another has taken over. Call the stop function of Keep first.
func (l *Lease) Done(ctx context.Context) error { return l.put(ctx, "done") }

// Free gives the lease back, to be taken by the next, after Keep has stopped.
func (l *Lease) Free(ctx context.Context) error { return l.put(ctx, "free") }

// put makes the next state, unless another has. A lease that is held lasts for
// another term.
func (l *Lease) put(ctx context.Context, what string) error {
	begin := time.Now()
	out, err := l.run(ctx, putScript, l.Key, l.owner, what, seconds(l.term))
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(out) == "put":
		l.until = begin.Add(l.term)
		return nil
	case strings.TrimSpace(out) == "lost":
		return ErrLost
	}
	return fmt.Errorf("the lock in the sandbox can't be read: %.100q", out)
}
