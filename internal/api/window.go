package api

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// coldStart is how many requests go at a time before a response has told the
	// limit. As the first may be ones that take long, it doubles each coldStep.
	coldStart = 2
	coldStep  = 250 * time.Millisecond
	// counted is how long after it was sent a request has surely been counted.
	counted = time.Second
	// kept is the divisor of a limit whose part is kept for what goes first.
	kept = 50
)

// window is one limit of the service: so many requests until its reset, by this
// client and all others of the team.
type window struct {
	quota  string
	limit  int  // zero until a response has told it
	silent bool // responses tell of no limit, and nothing is held back

	left    int       // what was left, as last told; all or what is dared where none was
	told    time.Time // the reset that was told, by the service's clock
	resets  time.Time // and by ours
	assumed bool      // it began by our clock, and no response has told of it yet
	length  time.Duration
	began   time.Time
	round   int // counts windows

	// start is what was left when such a window began; zero until that was seen.
	// had is what there was to share in this one. Of our requests sent in it, refused
	// ones were not permitted; the others, own, were or may be.
	start, had, own, refused int
	// others is how many other clients are taken to share it. All divide what is
	// left by their number, again and again, so that no more is sent than is there,
	// whoever begins and whoever has little to send.
	others float64
	shared bool // others were noticed

	flight  flight
	waiting []*waiter // in the order in which they go
	timer   *time.Timer
}

// slot is a request on its way.
type slot struct {
	w          *window
	sent       time.Time
	round      int
	prev, next *slot
}

// waiter is a request that is held back.
type waiter struct {
	first   bool
	ticket  uint64
	slot    *slot
	granted chan struct{}
	ok      bool // granted, by the pacer's mutex
}

func newWindow(quota string, limit int) *window {
	return &window{quota: quota, limit: limit, others: 1}
}

// free returns how many requests may be sent now.
func (w *window) free(now time.Time, first bool) int {
	switch {
	case w.silent:
		return math.MaxInt
	case w.limit == 0:
		return coldStart<<min(30, now.Sub(w.began)/coldStep) - w.flight.n
	}
	if !now.Before(w.resets) {
		w.begin(now)
	}
	if w.probing() {
		return w.left<<min(30, now.Sub(w.began)/counted) - w.flight.n
	}
	for w.flight.head != nil && w.flight.head.sent.Before(now.Add(-counted)) {
		w.flight.remove(w.flight.head)
		w.left--
	}
	if first {
		return w.left - w.flight.n
	}
	left := float64(w.left - w.limit/kept)
	most := int(left / (1 + w.others))
	if most < 1 && left > 0 && (w.assumed || !w.shared || left > math.Round(w.others)) {
		most = 1
	}
	return most - w.flight.n
}

// begin starts the next window. Until a response has told what it allows, it is
// taken to allow what such a window did before. Where none was seen, what was left
// of the last one is still there, and otherwise one request has to find out.
func (w *window) begin(now time.Time) {
	if !w.assumed {
		w.meet()
	}
	w.flight.clear()
	w.round++
	w.assumed, w.own, w.refused = true, 0, 0
	w.left = max(w.left, w.start, 1)
	w.began, w.resets = now, now.Add(max(w.length, counted))
}

// meet learns from a window that is over how many others share it.
func (w *window) meet() {
	switch sent := float64(w.own + w.refused); {
	case sent == 0:
	case w.refused > 0: // all together have sent so much more than they should
		w.others = min((1+w.others)*sent/max(float64(w.own), 0.5)-1, float64(w.limit))
	case w.theirs():
		w.others = max(1, w.others*0.9)
	default:
		if w.others /= 2; w.others < 0.2 {
			w.others, w.shared = 0, false
		}
	}
}

// probing reports whether it has yet to be seen how much a new window allows.
func (w *window) probing() bool { return w.assumed && w.start == 0 }

// send counts a request.
func (w *window) send(s *slot, now time.Time) {
	if w.limit == 0 && w.flight.n == 0 {
		w.began = now
	}
	s.w, s.sent, s.round = w, now, w.round
	w.flight.add(s)
	w.own++
}

// leave forgets a request that was sent in the window.
func (w *window) leave(s *slot) {
	if s.round == w.round {
		w.flight.remove(s)
	}
}

// report takes in what the response to a request tells. resets is r.Reset by our
// clock.
func (w *window) report(s *slot, r RateLimit, refused bool, resets, now time.Time) {
	ours := s.w == w && s.round == w.round // and among own
	switch {
	case r.Reset.Before(w.told), r.Reset.Equal(w.told) && w.assumed && !ours:
		return // it tells of a window that is over
	case r.Reset.Equal(w.told) && w.assumed: // the last window has not ended yet
		w.left, w.assumed = r.Remaining, false
		w.resets = now.Add(counted)
	case r.Reset.Equal(w.told):
		w.left = min(w.left, r.Remaining)
	default:
		length := resets.Sub(s.sent)
		w.length = max(w.length, length)
		w.had = min(w.limit, r.Remaining+1+w.flight.n)
		if w.assumed {
			w.start, w.had, w.length = w.had, w.limit, length
		}
		w.told, w.resets, w.left, w.assumed = r.Reset, resets, r.Remaining, false
		w.own, w.refused, ours = w.flight.n, 0, false
	}
	if !ours {
		w.own++
	}
	if refused {
		w.own--
		w.refused++
	}
	w.shared = w.shared || w.theirs()
}

// late takes in what a response tells of a window that was over before it came: not
// what is left now, but how much and how long such a window is.
func (w *window) late(s *slot, r RateLimit, resets time.Time) {
	switch r.Reset.Compare(w.told) {
	case -1:
		return
	case 1:
		w.told, w.start = r.Reset, 0
	}
	w.start = max(w.start, min(w.limit, r.Remaining+1))
	w.length = max(w.length, resets.Sub(s.sent))
}

// theirs reports whether others have used some of the window.
func (w *window) theirs() bool { return w.had-w.left-w.own > 0 }

// spent returns when the window begins that has the next requests; zero if this
// one may still have some.
func (w *window) spent(now time.Time) time.Time {
	if w.silent || w.limit == 0 || w.left > 0 || !now.Before(w.resets) {
		return time.Time{}
	}
	return w.resets
}

// join adds a waiter, and returns how many are before it. One that was refused
// goes back to its place.
func (w *window) join(q *waiter) (before int) {
	i, _ := slices.BinarySearchFunc(w.waiting, q, func(a, b *waiter) int {
		if a.first != b.first {
			if a.first {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.ticket, b.ticket)
	})
	w.waiting = slices.Insert(w.waiting, i, q)
	return i
}

// giveUp removes a waiter.
func (w *window) giveUp(q *waiter) {
	w.waiting = slices.DeleteFunc(w.waiting, func(other *waiter) bool { return other == q })
}

// wake lets those go that may. again is when to look once more; zero if nothing
// waits.
func (w *window) wake(now time.Time) (again time.Time) {
	for len(w.waiting) > 0 && w.free(now, w.waiting[0].first) > 0 {
		q := w.waiting[0]
		w.waiting[0] = nil
		w.waiting = w.waiting[1:]
		w.send(q.slot, now)
		q.ok = true
		close(q.granted)
	}
	switch {
	case len(w.waiting) == 0:
		w.waiting = nil
		return time.Time{}
	case w.limit == 0:
		return now.Add(coldStep)
	}
	again = w.resets
	if w.flight.n > 0 && again.After(now.Add(counted)) {
		again = now.Add(counted)
	}
	return again
}

// flight is a list of requests in the order in which they were sent.
type flight struct {
	head, tail *slot
	n          int
}

func (f *flight) add(s *slot) {
	s.prev, s.next = f.tail, nil
	if f.tail != nil {
		f.tail.next = s
	} else {
		f.head = s
	}
	f.tail = s
	f.n++
}

// remove removes a request, if it is there.
func (f *flight) remove(s *slot) {
	if s.prev == nil && f.head != s {
		return
	}
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		f.head = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		f.tail = s.prev
	}
	s.prev, s.next = nil, nil
	f.n--
}

func (f *flight) clear() {
	for f.head != nil {
		f.remove(f.head)
	}
}
