package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// playLimit is the time limit for one scenario.
const playLimit = time.Minute

// order is the job of a process: the scenario to play, and its circumstances.
type order struct {
	Scenario, Out string // the files of the scenario and of the result
	Vars          map[string]string
	Extra         json.RawMessage // exchanges in addition to the script
	Want          Recording
	Now           time.Time
}

// Players are processes of the test program. Each plays one scenario at a time, with the
// scenario's environment, home directory and working directory.
type Players struct {
	mu   sync.Mutex
	idle []*player
}

// player is a process. It reads the file names of its orders from standard input, and prints a
// line with [playedLine] after each scenario.
type player struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	output *bufio.Reader // standard output and standard error together
}

// playerEnv marks the environment of a player. playedLine is the line that a player prints
// after each scenario.
const (
	playerEnv  = "SANDBOX_CONFORMANCE_PLAYER"
	playedLine = "played\n"
)

// play lets a process play an order, and returns a [Played]. If the process fails or takes too
// long, it does not play another scenario.
func (p *Players) play(ctx context.Context, o order, sc *Scenario) any {
	file := o.Out + ".order"
	check(os.WriteFile(file, must(json.Marshal(o)), 0o600))
	one := p.process(sc.needsProcess())
	limit := time.AfterFunc(playLimit, func() { _ = one.cmd.Process.Kill() })
	defer limit.Stop()
	defer context.AfterFunc(ctx, func() { _ = one.cmd.Process.Kill() })()
	_, err := io.WriteString(one.orders, file+"\n")
	var printed strings.Builder
	for err == nil {
		var line string
		line, err = one.output.ReadString('\n')
		if line == playedLine {
			break
		}
		printed.WriteString(line)
	}
	if err != nil {
		panic(fmt.Sprintf("the process that played it failed (%v): %.3000s", one.end(), printed.String()))
	}
	if sc.needsProcess() {
		check(one.end())
	} else {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle = append(p.idle, one)
	}
	return decoded[any](must(os.ReadFile(o.Out)))
}

// needsProcess reports whether the scenario needs a new process. This is because the SDK looks
// for the variables of coding agents only at its first request.
func (s *Scenario) needsProcess() bool {
	names := slices.Collect(maps.Keys(s.Env))
	for _, step := range s.Steps {
		if step.Op == "env" {
			names = slices.AppendSeq(names, maps.Keys(decoded[localArgs](step.Args).Set))
		}
	}
	return slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, "VERCEL_") })
}

// process returns an idle process, or starts one. If fresh is set, it always starts one.
func (p *Players) process(fresh bool) *player {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle) - 1; n >= 0 && !fresh {
		one := p.idle[n]
		p.idle = p.idle[:n]
		return one
	}
	one := &player{cmd: exec.Command(must(os.Executable()), "-test.run=^TestPlayer$")}
	one.cmd.Env = append(os.Environ(), playerEnv+"=1", "GORACE=atexit_sleep_ms=0") // keeps the race detector from waiting for a second at the end
	one.orders = must(one.cmd.StdinPipe())
	output, printed, err := os.Pipe()
	check(err)
	one.cmd.Stdout, one.cmd.Stderr, one.output = printed, printed, bufio.NewReader(output)
	err = one.cmd.Start()
	check(errors.Join(err, printed.Close()))
	return one
}

// Close ends the processes.
func (p *Players) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.idle {
		check(one.end())
	}
	p.idle = nil
}

// end waits until the process has ended. The end of its input ends it.
func (one *player) end() error {
	_ = one.orders.Close()
	_, _ = io.Copy(io.Discard, one.output)
	return one.cmd.Wait()
}

// PlayerMain plays scenarios if this process was started to do so.
func PlayerMain(t *testing.T) {
	if os.Getenv(playerEnv) == "" {
		needs.Other(t, "only for a process that plays scenarios")
	}
	orders, answers, path := bufio.NewScanner(os.Stdin), os.Stdout, os.Getenv("PATH")
	for orders.Scan() {
		t.Run("", func(t *testing.T) { playOrder(t, decoded[order](must(os.ReadFile(orders.Text()))), path) })
		must(io.WriteString(answers, playedLine))
	}
	check(orders.Err())
}

// playOrder plays one scenario in a synctest bubble. So pauses take no time, and the order of
// events does not depend on the machine.
func playOrder(t *testing.T, o order, path string) {
	scenario := decoded[Scenario](Substitute(must(os.ReadFile(o.Scenario)), o.Vars))
	os.Clearenv()
	for k, v := range scenario.Env {
		t.Setenv(k, v)
	}
	t.Setenv("PATH", path)
	t.Setenv("HOME", o.Vars["HOME"])
	t.Chdir(o.Vars["CWD"])
	in, out := must(os.Open(os.DevNull)), os.Stderr
	if scenario.TTY {
		_ = in.Close()
		terminal, tty, err := pty.Open()
		check(err)
		defer func() { _ = terminal.Close() }()
		in, out = tty, tty
	}
	defer func() { _ = in.Close() }()
	os.Stdin, os.Stdout = in, out
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(o.Now)) // the clock of a bubble starts in the year 2000
		server := newServer(append(scenario.Server, decoded[[]Exchange](o.Extra)...), &scenario, o.Want)
		server.more = server.script[len(scenario.Server):]
		connections := newPipes()
		scripted := &http.Server{Handler: server}
		go func() { _ = scripted.Serve(connections) }()
		d := newDriver(&scenario, server, connections)
		results := d.run(t.Context())
		server.use(d.rules...)
		unused, omitted := server.unused()
		check(os.WriteFile(o.Out, marshal(object{ // the members of a [Played]
			"requests": server.log, "raw": server.raw, "results": results, "unused": unused, "omitted": omitted, "rules": server.used,
		}), 0o600))
		check(scripted.Close()) // makes running calls fail
	})
}
