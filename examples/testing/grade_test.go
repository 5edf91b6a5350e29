package main

import (
	"context"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// python skips a test if this machine has no Python for the emulator to run.
func python(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
}

// The emulator runs real processes.
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

// A function replaces the program, and the test advances the server's clock, so
// that it doesn't wait for the time limit.
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

// The connection breaks while the output arrives. The SDK reconnects.
func TestGradeSurvivesCuts(t *testing.T) {
	python(t)
	srv := sandboxtest.New(t, nil)
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, CutAfterBytes: 300, Times: 1})
	got, err := Grade(t.Context(), srv.Client(), "print(12)")
	if err != nil || got != Right {
		t.Errorf("Grade = %q, %v; want %q", got, err, Right)
	}
}

// A gateway fails after it has forwarded the command. The SDK finds the command by
// its ID and does not run it again.
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
