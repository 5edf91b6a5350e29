package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDebug: --debug shows all events from the start, indented by their depth, but no
// argument of the command.
func TestDebug(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "seen")
	d.ok("stop", "seen")
	got := d.run("", "--debug", "exec", "seen", "echo", "secret-argument")
	assert.Zero(t, got.code, got.stderr)
	const clock = `(?m)^\d\d:\d\d:\d\d\.\d{3} `
	assert.Regexp(t, clock+`> request operation="get sandbox" sandbox=seen method=GET path=/v2/sandboxes/\{sandbox\}`, got.stderr)
	assert.Regexp(t, clock+`> command sandbox=seen .*program=echo`, got.stderr)
	assert.Regexp(t, clock+`  > request operation="run command"`, got.stderr)
	assert.Regexp(t, clock+`< command sandbox=seen session=\S+ command=\S+ program=echo outcome=ok received=16 duration=`, got.stderr)
	assert.Regexp(t, `resume sandbox=seen`, got.stderr)
	for line := range strings.Lines(got.stderr) {
		if strings.Contains(line, "secret-argument") {
			assert.Equal(t, "$ echo secret-argument\n", line, "exec itself shows the command line")
		}
	}
}
