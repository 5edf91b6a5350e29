package limits_test

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestCanceledPrograms cancels each call that runs helper programs, while such a program
// waits. The call returns, and its programs end. Programs that clean up, or that create
// users and groups, finish first.
func TestCanceledPrograms(t *testing.T) {
	needs.Long(t, "it cancels some thirty calls, one after another")
	needs.Programs(t, "pgrep")
	_, sb := testkit.Start(t, nil)
	var programs []sandbox.File
	for name := range strings.FieldsSeq("base64 chgrp chmod chown cp dd find gzip ln ls mkdir mktemp mv readlink realpath sha256sum stat tail tar touch truncate wc") {
		programs = append(programs, sandbox.File{Path: "waits/" + name, Content: []byte("#!/bin/sh\n/bin/sleep 600.25 & wait\n"), Mode: new(fs.FileMode(0o755))})
	}
	require.NoError(t, sb.WriteFiles(t.Context(), programs, nil))
	_, _ = sb.RunCommand(t.Context(), "useradd", []string{"u"}, &sandbox.CommandOptions{Sudo: true}) // fails if this sandbox can't have users
	require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Env: sandbox.Env{"PATH": sb.Cwd() + "/waits:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}))
	user, err := sb.AsUser("u")
	require.NoError(t, err)
	h := &hostile{sb: sb, fs: sb.FS(), user: user, local: t.TempDir()}
	waits := func() bool { // reports whether such a program or its child is running
		found, err := sb.RunCommand(t.Context(), "/usr/bin/pgrep", []string{"-f", "^/bin/sleep 600.25"}, nil)
		require.NoError(t, err)
		return found.ExitCode == 0
	}
	met := 0
	for _, name := range slices.Sorted(maps.Keys(endlessCalls)) {
		call := endlessCalls[name]
		if call == nil || name == "terminal.Open" || name == "Sandbox.WaitForPort" { // these run no program
			continue
		}
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- call(ctx, h) }()
			for len(done) == 0 && !waits() { // waits makes a request, so this loop needs no pause
			}
			if len(done) > 0 {
				t.Log("the call ran none of these programs: ", <-done)
				return
			}
			met++
			cancel()
			assert.ErrorIs(t, <-done, context.Canceled)
			assert.Eventually(t, func() bool { return !waits() }, testkit.Patience, 10*time.Millisecond)
		})
	}
	assert.GreaterOrEqual(t, met, 20)
}
