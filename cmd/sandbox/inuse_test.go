package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestCopyInUse copies a directory that programs are writing to. cp names the files that
// changed during the copy, and ends with its own exit code.
func TestCopyInUse(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	if d.server.Mode() == sandboxtest.Folder {
		needs.Missing(t, "namespaces: tar is replaced in a folder of the sandbox")
	}
	sb, err := d.server.Client().Create(t.Context(), &sandbox.CreateOptions{Name: "c", Env: sandbox.Env{"PATH": "/vercel/bin:/usr/local/bin:/usr/bin:/bin"}})
	require.NoError(t, err)
	d.ok("create", "--name", "other")
	// This tar waits at a full pipe until part of the archive has been read.
	const tar = `#!/bin/bash
/usr/bin/tar "$@" | { head -c 20000; cd /vercel/d; . ../during; cat; }
exit "${PIPESTATUS[0]}"
`
	big := strings.Repeat("0123456789abcdef", 200_000)
	require.NoError(t, sb.FS().WriteFile(t.Context(), "/vercel/bin/tar", []byte(tar), 0o755))
	for _, row := range []struct {
		during, changed string
		args            []string
		code            int
	}{
		{"echo more >>aa", "aa", []string{"cp", "-r", "c:d", "here"}, 24},
		{": >aa", "aa", []string{"cp", "-r", "c:d", "here"}, 24},
		{"true", "", []string{"cp", "-r", "c:d", "here"}, 0},
		{"echo more >>aa", "aa", []string{"cp", "-r", "c:d", "other:here"}, 24},
		{"echo more >>aa", "aa", []string{"cp", "c:d", "-"}, 24},
		{": >aa", "File shrank", []string{"cp", "c:d", "-"}, 1},
	} {
		require.NoError(t, os.RemoveAll(filepath.Join(d.dir, "here")))
		d.ok("exec", "other", "rm", "-rf", "here")
		require.NoError(t, sb.FS().RemoveAll(t.Context(), "d"))
		require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{
			{Path: "d/aa", Content: []byte(big)}, {Path: "d/mm", Content: []byte("left alone")}, {Path: "during", Content: []byte(row.during)},
		}, nil))
		got := d.run("", row.args...)
		said := strings.Join(row.args, " ") + " while " + row.during + ": " + got.stderr
		assert.Equal(t, row.code, got.code, said)
		assert.Contains(t, got.stderr, row.changed, said)
		switch row.args[len(row.args)-1] {
		case "here":
			data, err := os.ReadFile(filepath.Join(d.dir, "here/mm"))
			require.NoError(t, err, said)
			assert.Equal(t, "left alone", string(data), said)
			aa, err := os.ReadFile(filepath.Join(d.dir, "here/aa"))
			require.NoError(t, err, said)
			assert.False(t, strings.Contains(string(aa), "\x00"), "%s: the copy contains zeros that no program wrote", said)
		case "other:here":
			assert.Equal(t, "left alone", d.ok("cp", "other:here/mm", "-"), said)
		}
	}
}
