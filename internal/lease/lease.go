// Package lease is a lock in a sandbox: of all processes that want to do
// something in it, on whatever machines, one does it, and the others wait until
// it is done or take over from one that has died.
//
// A lock is a directory of the sandbox that is named by its key. Its states are
// the symbolic links 1, 2, 3 and so on in it: the link with the highest number is
// the state now, and to change it is to make the next link. The file system makes
// a link only if there is none of that name, together with what it says, so each
// state follows from one that its maker has seen, and nothing is ever removed or
// replaced. (mkdir is as atomic, but a directory has no content at first, and who
// died there would never release it.) Time is the sandbox's, so that the clocks of
// the processes don't matter.
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
	"sync"
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
	// NoWait returns ErrHeld instead of waiting for another's lease.
	NoWait bool
}

// Errors of leases.
var (
	// ErrLost reports that the lease has run out, or that another has taken over.
	ErrLost = errors.New("the lease of the lock in the sandbox has ended")
	// ErrHeld reports that another holds the lock.
	ErrHeld = errors.New("another holds the lock in the sandbox")
)

// Lease is the right to do what a key stands for. It is safe for concurrent use.
type Lease struct {
	run   Runner
	owner string
	term  time.Duration

	// turn is full while a command changes the lock: one at a time, each for as
	// long as its context lasts.
	turn chan struct{}
	mu   sync.Mutex // of the state, and never held while a command runs
	state
}

// state is what a lease is.
type state struct {
	key   string
	n     int       // the state's number
	until time.Time // when the lease ends, at the earliest
}

// Key returns what the lease is for. It waits for nothing.
func (l *Lease) Key() string { return l.now().key }

func (l *Lease) now() state {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *Lease) become(s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
}

// enter waits for the turn to change the lock; leave gives it back.
func (l *Lease) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil { // of two that are ready, select takes any
		return err
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Lease) leave() { <-l.turn }

// place is where locks are: it lasts as long as the sandbox's files.
const place = `root=${HOME:-/var/tmp}/.go-sandbox
`

const takeScript = place + `umask 077
owner=$1 term=$2 end=$(( $(date +%s) + $3 )); shift 3
for key; do
	dir=$root/$key
	mkdir -p "$dir" || exit 1
	while :; do
		n=0 state= now=$(date +%s)
		while [ -h "$dir/$((n+1))" ]; do n=$((n+1)); done
		[ $n = 0 ] || state=$(readlink "$dir/$n") || exit 1
		case $state in
		done.*) break;;
		held."$owner".*) echo "taken $n $key"; exit;;
		held.*) if [ "$now" -le "${state##*.}" ]; then
				[ "$now" -lt "$end" ] || { echo "held $n $key"; exit; }
				sleep 0.2 2>/dev/null || sleep 1
				continue
			fi;;
		esac
		if ln -s "held.$owner.$((now+term))" "$dir/$((n+1))" 2>/dev/null; then
			echo "taken $((n+1)) $key"
			exit
		fi
		[ -h "$dir/$((n+1))" ] || { echo "cannot write to $dir" >&2; exit 1; }
	done
done
echo done`

const putScript = place + `key=$1 owner=$2 n=$(($3+1)) state=$4 term=$5
now=$(date +%s)
ln -s "$state.$owner.$((now+term))" "$root/$key/$n" 2>/dev/null
is=$(readlink "$root/$key/$n") || { echo "cannot write to $root/$key" >&2; exit 1; }
case $is in
"$state.$owner."*) echo put;;
*) echo lost;;
esac`

// longestWait is how long one command waits for another's lease.
const longestWait = 10 * time.Second

// clockSlack is by how much less the script may wait, as it counts in seconds.
const clockSlack = 2 * time.Second

// Take returns a lease of the first of the keys that is not done. It returns nil
// if all of them are done, and waits while another holds one. Each attempt is one
// command, which waits in the sandbox for at most ten seconds.
func Take(ctx context.Context, run Runner, o Options, keys ...string) (*Lease, error) {
	wait := longestWait
	if o.NoWait {
		wait = 0
	}
	for {
		begin := time.Now()
		args := append([]string{o.Owner, seconds(o.Term), seconds(wait)}, keys...)
		out, err := run(ctx, takeScript, args...)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(out) == "done" {
			return nil, nil
		}
		var what, key string
		var n int
		_, err = fmt.Sscanf(out, "%s %d %s\n", &what, &n, &key)
		// A key of its own choice would be one of another sandbox's hooks.
		if err != nil || what != "taken" && what != "held" || n < 1 || !slices.Contains(keys, key) {
			return nil, fmt.Errorf("the lock in the sandbox can't be read: %.100q", out)
		}
		switch {
		case what == "taken":
			// It may have begun at any time since.
			return &Lease{run: run, owner: o.Owner, term: o.Term, turn: make(chan struct{}, 1), state: state{key, n, begin.Add(o.Term)}}, nil
		case o.NoWait:
			return nil, ErrHeld
		}
		// The script has waited, unless something stands in its place.
		rest := time.NewTimer(time.Until(begin.Add(wait - clockSlack)))
		select {
		case <-rest.C:
		case <-ctx.Done(): // of which run tells
			rest.Stop()
		}
	}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// Keep renews the lease, in a goroutine, until stop is called. The context that it
// returns ends with ctx, and with ErrLost as its cause when the lease does.
func (l *Lease) Keep(ctx context.Context) (kept context.Context, stop func()) {
	kept, lose := context.WithCancelCause(ctx)
	renewing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for l.renewLater(renewing) {
		}
		if renewing.Err() == nil {
			lose(ErrLost)
		}
	}()
	return kept, func() {
		cancel()
		<-done
		lose(context.Canceled)
	}
}

// renewLater waits for the time to renew the lease, and reports whether it still
// lasts.
func (l *Lease) renewLater(ctx context.Context) bool {
	timer := time.NewTimer(l.term / 3)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	attempt, cancel := context.WithDeadline(ctx, l.now().until)
	defer cancel()
	if err := l.put(attempt, "held"); errors.Is(err, ErrLost) {
		return false
	}
	return time.Now().Before(l.now().until)
}

// Move makes the lease one of another key, which must be neither held nor done.
// What the old key stands for has no longer to be done, as after the session that
// it was for has ended.
func (l *Lease) Move(ctx context.Context, key string) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	next, err := Take(ctx, l.run, Options{Owner: l.owner, Term: l.term, NoWait: true}, key)
	switch {
	case err != nil:
		return err
	case next == nil:
		return ErrLost
	}
	l.become(next.state)
	return nil
}

// Done records that what the key stands for need not be done again. The error
// is ErrLost if another has taken over. Call the stop function of Keep first.
func (l *Lease) Done(ctx context.Context) error { return l.put(ctx, "done") }

// Free gives the lease back, to be taken by the next.
func (l *Lease) Free(ctx context.Context) error { return l.put(ctx, "free") }

// put makes the next state, unless another has. A lease that is held lasts for
// another term.
func (l *Lease) put(ctx context.Context, what string) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	begin, is := time.Now(), l.now()
	out, err := l.run(ctx, putScript, is.key, l.owner, strconv.Itoa(is.n), what, seconds(l.term))
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(out) == "put":
		if is.n++; what == "held" {
			is.until = begin.Add(l.term)
		}
		l.become(is)
		return nil
	case strings.TrimSpace(out) == "lost":
		return ErrLost
	}
	return fmt.Errorf("the lock in the sandbox can't be read: %.100q", out)
}
