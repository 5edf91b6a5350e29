package main

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRshStandardError: a sandbox that replaces the file with standard error by something
// endless neither fills rsh's memory nor blocks it.
func TestRshStandardError(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	for how, want := range map[string]string{
		`rm $f; ln -s /dev/zero $f`: "no longer a regular file",
		`rm $f; mkfifo $f`:          "no longer a regular file",
		`truncate -s 17M $f`:        "more than 16 MiB",
		`echo short >&2`:            "short",
	} {
		got := d.run("", "rsh", "c", `f=$(ls /tmp/.sandbox-rsh-*); `+how+`; echo done`)
		assert.Equal(t, "done\n", got.stdout, how)
		assert.True(t, len(got.stderr) < 17<<20, strconv.Itoa(len(got.stderr)))
		assert.Contains(t, got.stderr[max(0, len(got.stderr)-1000):], want, how)
	}
}
