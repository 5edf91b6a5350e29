package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestCompletion completes commands, options, their values, and names of sandboxes. The
// names are requested by their prefix, because there may be more than one page.
func TestCompletion(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	client := d.server.Client()
	names := []string{"box-1"}
	for i := range 60 {
		names = append(names, fmt.Sprintf("newer-%02d", i))
	}
	for _, name := range names {
		_, err := client.Create(t.Context(), &sandbox.CreateOptions{Name: name})
		require.NoError(t, err)
	}
	for line, want := range map[string]string{
		"":                                  "list",
		"config ":                           "vcpus",
		"exec b":                            "box-1",
		"rm -y b":                           "box-1",
		"--project prj_emulator -q stop b":  "box-1",
		"rm newer-59 b":                     "box-1",
		"cp b":                              "box-1:",
		"fork b":                            "box-1",
		"config persistent box-1 ":          "true",
		"create --re":                       "--region",
		"create --region ":                  "iad1",
		"ls --status ":                      "stopped",
		"ls --sort-by ":                     "statusUpdatedAt",
		"--color ":                          "never",
		"create ":                           "fx",
		"completion ":                       "fish",
		"create --delete-evicted-snapshots": "--delete-evicted-snapshots",
	} {
		got := d.ok(append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...)
		assert.Contains(t, strings.Split(got, "\n"), want, "%q", line)
	}
	// Nothing is offered for the words of a remote command and for free text, not even files.
	for _, line := range []string{"exec box-1 -- --su", "exec box-1 ls --su", "create --timeout ", "config list box-1 ", "read box-1 "} {
		got := d.ok(append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...)
		assert.Regexp(t, `^:4\n`, got, "%q", line)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		assert.Contains(t, d.ok("completion", shell), "sandbox", shell)
	}
}
