package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// codingAgent is a program in the universal image that create starts by name.
type codingAgent struct {
	name, title string
	args        []string
	env         sandbox.Env
	resume      []string // arguments that continue the last conversation
}

// codingAgents are the agents that the official CLI starts.
var codingAgents = []*codingAgent{
	{name: "claude", title: "Claude Code", resume: []string{"--continue"}},
	{name: "codex", title: "Codex", args: []string{"--no-daemon"}, resume: []string{"resume", "--last", "--no-daemon"}},
	{name: "fx", title: "fx", resume: []string{"-c"}},
	{name: "opencode", title: "OpenCode", env: sandbox.Env{"OPENCODE_DISABLE_AUTOUPDATE": "true"}, resume: []string{"--continue"}},
	{name: "pi", title: "Pi", resume: []string{"--continue"}},
}

// universalImage is the image that contains the agents.
const universalImage = "vercel/sandbox/universal"

// findAgent returns the agent with a name, or nil.
func findAgent(name string) *codingAgent {
	i := slices.IndexFunc(codingAgents, func(g *codingAgent) bool { return g.name == name })
	if i < 0 {
		return nil
	}
	return codingAgents[i]
}

func agentNames() []string {
	names := make([]string, len(codingAgents))
	for i, g := range codingAgents {
		names[i] = g.name
	}
	return names
}

// checkAgent reports options that can't be combined with an agent, and a missing terminal.
// It makes no request.
func (c *createCommand) checkAgent(g *codingAgent, s *settingsOptions) error {
	if s.runtime != "" || s.image != "" || s.snapshot != "" {
		return line.Usagef("create %s can't be combined with --runtime, --image or --snapshot", g.name)
	}
	return c.screen.NeedTerminal("%s makes a sandbox without an agent", screen.Try("create"))
}

// startAgent starts an agent in a terminal of a sandbox. It passes the sandbox's
// environment explicitly, because terminals don't get it by default. The sandbox continues
// to run when the agent ends, so startAgent finally prints how to reconnect, unless
// --silent is set.
func (c *createCommand) startAgent(ctx context.Context, g *codingAgent, sb *sandbox.Sandbox, s *settingsOptions, given sandbox.Env) error {
	env := maps.Clone(g.env)
	if env == nil {
		env = sandbox.Env{}
	}
	maps.Copy(env, given)
	if !s.silent {
		defer c.printReconnect(g, sb.Name(), s, given)
	}
	check, err := sb.RunCommand(ctx, g.name, []string{"--version"}, &sandbox.CommandOptions{Env: env, Stdout: io.Discard, Stderr: io.Discard})
	if err == nil && check.ExitCode != 0 {
		err = fmt.Errorf("the check of its version ended with exit code %d", check.ExitCode)
	}
	if err != nil {
		return startError(screen.During(err, fmt.Sprintf("could not start %s (%s) in the sandbox", g.title, g.name)))
	}
	return c.terminal(ctx, sb, &terminalOptions{command: g.name, args: g.args, env: env, keepAlive: true})
}

// printReconnect prints how to reconnect to an agent and how to stop its sandbox. It omits
// the values of variables, because they may be secrets.
func (c *createCommand) printReconnect(g *codingAgent, name string, s *settingsOptions, given sandbox.Env) {
	exec := slices.Concat(c.account.Here("exec"), []string{"--interactive"})
	for _, key := range slices.Sorted(maps.Keys(g.env)) {
		if _, own := given[key]; !own {
			exec = append(exec, "--env="+key+"="+g.env[key])
		}
	}
	for _, file := range s.envFiles {
		exec = append(exec, "--env-file="+file)
	}
	var values []string
	for _, p := range s.env {
		exec = append(exec, "--env="+p.Key)
		values = append(values, p.Key)
	}
	exec = append(exec, name, "--", g.name)
	lines := []string{
		"Reconnect: " + line.ShellWords(append(exec, g.resume...)),
		"Stop: " + line.ShellWords(append(c.account.Here("stop"), name)),
	}
	if len(values) > 0 {
		lines = slices.Insert(lines, 0, "Reconnecting takes "+strings.Join(values, ", ")+" from your shell: export the same values there first.")
	}
	fmt.Fprintf(c.screen.Err, "%s Exiting %s does not stop the sandbox.\n", c.screen.Err.Paint(console.Cyan, "ℹ"), g.title)
	c.screen.Tree(lines, func(s string) string { return c.screen.Err.Paint(console.Dim, s) })
}
