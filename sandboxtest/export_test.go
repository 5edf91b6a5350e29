package sandboxtest

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// Every test of this package that has a directory also looks whether each
// change is in the file: a place that changes an object and does not say so
// fails whatever test comes by.
func init() {
	if os.Getenv(uncheckedEnv) != "" {
		return
	}
	var long atomic.Int64
	store.CheckSaved = func(name string, whole *store.State) error {
		if len(whole.Sandboxes) > 100 {
			return nil // it would cost too much
		}
		if info, err := os.Stat(name); err == nil && info.Size() > 128<<10 && long.Add(1)%16 != 0 {
			return nil // so would each change of a long file
		}
		saved, err := store.ReadState(name)
		if err != nil {
			return err
		}
		if want, got := sorted(whole), sorted(saved); want != got {
			panic(fmt.Sprintf("the file does not say what the memory does:\n%s\n%s", want, got))
		}
		return nil
	}
}

func sorted(in *store.State) string {
	lines := []string{in.Kind}
	add := func(x any) {
		data, err := json.Marshal(x)
		if err != nil {
			panic(err)
		}
		lines = append(lines, fmt.Sprintf("%T %s", x, data))
	}
	for _, x := range in.Sandboxes {
		add(x)
	}
	for _, x := range in.Sessions {
		add(x)
	}
	for _, x := range in.Snapshots {
		add(x)
	}
	for _, x := range in.Drives {
		add(x)
	}
	slices.Sort(lines)
	return fmt.Sprint(lines)
}

// Freeze stops the machine's clock for the server: only Advance moves its time
// on, however slow the machine is.
func (s *Server) Freeze() {
	s.store.Clock.Replace(func(before func() time.Time) func() time.Time {
		at := before()
		return func() time.Time { return at }
	})
}

// Due counts what is to happen within d.
func (s *Server) Due(d time.Duration) int { return s.store.Clock.Due(d) }

// uncheckedEnv leaves these looks out, to measure what a change costs.
const uncheckedEnv = "SANDBOXTEST_UNCHECKED"

// ReadState says what is in a file of the state, in an order of its own.
func ReadState(name string) (string, error) {
	in, err := store.ReadState(name)
	if err != nil || in == nil {
		return "", err
	}
	return sorted(in), nil
}

// Operations are those with a route.
func Operations() (names []string) {
	for _, e := range endpoints {
		names = append(names, string(e.op))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Tick makes d pass at each look at the clock.
func (s *Server) Tick(d time.Duration) {
	s.store.Clock.Replace(func(func() time.Time) func() time.Time {
		var looks time.Duration
		return func() time.Time { looks += d; return time.Now().Add(looks) }
	})
}
