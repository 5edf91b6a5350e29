package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// python skips a test where the emulator has no Python to run.
func python(t *testing.T) {
	t.Helper()
	needs.Programs(t, "python3")
}

// Real processes: the answers are run by Python.
func TestGrade(t *testing.T) {
	python(t)
	srv := sandboxtest.New(t, nil)
	for answer, want := range map[string]Verdict{
		"print(sum(map(int, input().split())))": Right,
		"print(11)":                             Wrong,
		"print(1 / 0)":                          Crashed,
	} {
		got, err := Grade(t.Context(), srv.Client(), answer)
		if err != nil || got != want {
			t.Errorf("Grade(%q) = %q, %v; want %q", answer, got, err, want)
		}
	}
}

// A function stands in for the program, and the server's clock is advanced: the
// time limit is tested without waiting for it.
func TestGradeTimeLimit(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	started := make(chan struct{})
	srv.HandleCommand("sh -c *answer.py*", func(ctx context.Context, _ *sandboxtest.Invocation) int {
		close(started)
		<-ctx.Done()
		return 0
	})
	go func() {
		<-started
		srv.Advance(timeLimit)
	}()
	got, err := Grade(t.Context(), srv.Client(), "while True: pass")
	if err != nil || got != TooSlow {
		t.Errorf("Grade = %q, %v; want %q", got, err, TooSlow)
	}
}

// The connection with the output breaks: the SDK reconnects.
func TestGradeSurvivesCuts(t *testing.T) {
	python(t)
	srv := sandboxtest.New(t, nil)
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, CutAfterBytes: 300, Times: 1})
	got, err := Grade(t.Context(), srv.Client(), "print(12)")
	if err != nil || got != Right {
		t.Errorf("Grade = %q, %v; want %q", got, err, Right)
	}
}

// A gateway fails after it passed the command on: the SDK finds the command by
// its ID, and does not run it again.
func TestGradeDoesNotRunTwice(t *testing.T) {
	python(t)
	srv := sandboxtest.New(t, nil)
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, ActThenStatus: http.StatusBadGateway})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got, err := Grade(ctx, srv.Client(), "print(12)"); err != nil || got != Right {
		t.Errorf("Grade = %q, %v; want %q", got, err, Right)
	}
	commands := 0
	for _, r := range srv.Requests() {
		if r.Operation == sandboxtest.RunCommand {
			commands++
		}
	}
	if commands != 1 {
		t.Errorf("%d commands, want 1", commands)
	}
}
