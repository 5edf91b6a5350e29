package main

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/cli"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// A worker is a process that runs the program's command lines one after another. This
// package tests thousands of short lines, and to start a process for each would take most
// of the time.

// asWorker is the argument that makes the test binary a worker.
const asWorker = "__worker"

// workerLine is a command line for a worker.
type workerLine struct {
	Args  []string
	Dir   string
	Stdin string
}

// workerResult is the result of a line.
type workerResult struct {
	Code           int
	Stdout, Stderr []byte
}

// workerMain reads lines from standard input and writes their results to standard
// output.
func workerMain() {
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	for {
		var l workerLine
		if in.Decode(&l) != nil {
			os.Exit(0)
		}
		result, err := l.run()
		if err != nil || out.Encode(result) != nil {
			os.Exit(1)
		}
	}
}

// run runs the program with its own streams, which are pipes, as for a process that a
// test starts.
func (l *workerLine) run() (result workerResult, err error) {
	if err := os.Chdir(l.Dir); err != nil {
		return result, err
	}
	stdin, feed, err := os.Pipe()
	if err != nil {
		return result, err
	}
	var streams sync.WaitGroup
	streams.Go(func() {
		_, _ = io.WriteString(feed, l.Stdin) // the program may not read everything
		feed.Close()
	})
	collect := func(into *[]byte) *os.File {
		r, w, pipeErr := os.Pipe()
		if pipeErr != nil {
			err = pipeErr
			return nil
		}
		streams.Go(func() {
			*into, _ = io.ReadAll(r) // ends when all writers are closed
			r.Close()
		})
		return w
	}
	stdout, stderr := collect(&result.Stdout), collect(&result.Stderr)
	if err != nil {
		return result, err
	}
	os.Stdin, os.Stdout, os.Stderr = stdin, stdout, stderr
	result.Code = cli.Main(l.Args)
	stdin.Close()
	stdout.Close()
	stderr.Close()
	streams.Wait()
	return result, nil
}

// worker is a worker's process, and the environment that it was started with.
type worker struct {
	mu     sync.Mutex
	env    []string
	cmd    *exec.Cmd
	stdin  io.Closer
	in     *gob.Encoder
	out    *gob.Decoder
	stderr bytes.Buffer
}

// runInWorker runs a line in the worker, with the workspace's environment. It returns false
// while the worker runs another line, and always with SANDBOX_SLOW=1. Then the line needs a
// process of its own.
func (d *workspace) runInWorker(l workerLine) (got outcome, ran bool) {
	d.t.Helper()
	if needs.Slow() || !slices.Contains(d.env, asProgram+"=1") || !d.worker.mu.TryLock() {
		return got, false
	}
	defer d.worker.mu.Unlock()
	got, err := d.worker.run(d.env, l)
	require.NoError(d.t, err)
	return got, true
}

// run runs a line with an environment. It starts the process if there is none with
// that environment.
func (w *worker) run(env []string, l workerLine) (outcome, error) {
	if w.cmd == nil || !slices.Equal(w.env, env) {
		w.end()
		if err := w.start(env); err != nil {
			return outcome{}, err
		}
	}
	var result workerResult
	err := w.in.Encode(l)
	if err == nil {
		err = w.out.Decode(&result)
	}
	if err != nil {
		w.end()
		return outcome{}, fmt.Errorf("the worker ended during sandbox %s: %w\n%s", strings.Join(l.Args, " "), err, w.stderr.String())
	}
	return outcome{result.Code, string(result.Stdout), string(result.Stderr)}, nil
}

func (w *worker) start(env []string) error {
	cmd := exec.Command(os.Args[0], asWorker)
	w.stderr.Reset()
	cmd.Env, cmd.Stderr = env, &w.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	w.env, w.cmd, w.stdin, w.in, w.out = slices.Clone(env), cmd, in, gob.NewEncoder(in), gob.NewDecoder(out)
	return cmd.Start()
}

// end ends the worker's process.
func (w *worker) end() {
	if w.cmd == nil {
		return
	}
	w.stdin.Close()
	_ = w.cmd.Wait() // the results are already checked
	w.cmd = nil
}

// line returns the command line of this workspace with these arguments.
func (d *workspace) line(stdin string, args ...string) workerLine {
	return workerLine{Args: slices.Concat(d.options, args), Dir: d.dir, Stdin: stdin}
}

// in returns the line for a folder below its own.
func (l workerLine) in(dir string) workerLine {
	l.Dir = filepath.Join(l.Dir, dir)
	return l
}
