package main

import (
	"context"
	"strings"
	"time"
)

// action is a request of a model: a file to write or, if Path is empty, a
// command to run.
type action struct {
	Path, Text string
	Command    string
}

// observation is the result of an action.
type observation struct {
	ExitCode int
	Output   string
}

// model decides what to do next for a task given the observations so far, and
// returns false when the task is done.
type model interface {
	Next(task string, seen []observation) (action, bool)
}

const (
	taskWrite = "Write a program that prints the first primes, and test it."
	taskUse   = "What is the sum of the first ten?"

	primes = `import sys

n, found = 2, []
while len(found) < int(sys.argv[1]):
    if all(n % p for p in found):
        found.append(n)
    n += 1
print(*found)
`
)

// scripted stands in for a language model. Like one, it makes a mistake, reads
// the error and fixes it.
type scripted struct{}

func (scripted) Next(task string, seen []observation) (action, bool) {
	if task == taskUse {
		return action{Command: `python3 primes.py 10 | tr ' ' '\n' | awk '{ sum += $1 } END { print "sum:", sum }'`}, len(seen) == 0
	}
	check := action{Command: `python3 primes.py 5 | grep -x "2 3 5 7 11" && echo correct`}
	switch {
	case len(seen) == 0:
		return action{Path: "primes.py", Text: strings.Replace(primes, "found = 2, []", "found = 2", 1)}, true
	case len(seen) == 1:
		return check, true
	case strings.Contains(seen[len(seen)-1].Output, "ValueError") || strings.Contains(seen[len(seen)-1].Output, "TypeError"):
		return action{Path: "primes.py", Text: primes}, true
	case seen[len(seen)-1] == observation{}:
		return check, true
	}
	return action{}, false
}

// user stands in for someone who gives tasks, and takes a while to read each
// answer. There are no more tasks when the channel is closed.
type user struct{ tasks, answers chan string }

func newUser(ctx context.Context, pause time.Duration) *user {
	u := &user{tasks: make(chan string), answers: make(chan string, 1)}
	go func() {
		defer close(u.tasks)
		for _, task := range []string{taskWrite, taskUse} {
			select {
			case u.tasks <- task:
			case <-ctx.Done():
				return
			}
			select {
			case <-u.answers:
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}()
	return u
}
