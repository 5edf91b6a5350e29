//go:build unix

package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHomes: commands that store no files work without a home directory. A pipe, a device
// or a huge file at the name of the configuration file does not block them.
func TestHomes(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c", "--silent")
	d.write("sandbox-cli/telemetry.json", "[") // this is not the file in the home directory
	d.unset("HOME")
	for _, home := range []string{"", "HOME=", "HOME=/dev/null", "HOME=/nonexistent"} {
		t.Run(home, func(t *testing.T) {
			env := d.env
			defer func() { d.env = env }()
			d.env = slices.Clone(env)
			if home != "" {
				d.env = append(d.env, home)
			}
			assert.Equal(t, "c\n", d.ok("ls", "-q"))
			assert.Equal(t, "hi\n", d.ok("exec", "c", "echo", "hi"))
			d.ok("__completeNoDesc", "exec", "")
			d.unset("VERCEL_AUTH_TOKEN")
			got := d.run("", "ls")
			assert.Equal(t, 4, got.code, got.stderr)
		})
	}
	got := d.run("", "telemetry", "enable")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "set HOME")
	got = d.run("", "--local", "ls")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "set HOME")

	d.env = append(d.env, "HOME="+d.home)
	config := filepath.Join(d.home, ".config", "sandbox-cli", "telemetry.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(config), 0o700))
	for what, put := range map[string]func() error{
		"it is not a regular file": func() error { return syscall.Mkfifo(config, 0o600) },
		"it has more than":         func() error { return os.WriteFile(config, make([]byte, 2<<20), 0o600) },
	} {
		require.NoError(t, put())
		unread := make(chan struct{})
		go func() {
			defer close(unread)
			// Release a reader that waits at the pipe.
			if f, err := os.OpenFile(config, os.O_WRONLY, 0); err == nil {
				f.Close()
			}
		}()
		got := d.run("", "telemetry", "enable")
		if f, err := os.OpenFile(config, os.O_RDONLY|syscall.O_NONBLOCK, 0); assert.NoError(t, err) {
			<-unread
			f.Close()
		}
		assert.Equal(t, 1, got.code)
		assert.Contains(t, got.stderr, what)
		require.NoError(t, os.Remove(config))
	}

	// A login that can't be read.
	d.unset("VERCEL_AUTH_TOKEN")
	loop := filepath.Join(d.home, "auth.json")
	require.NoError(t, os.Symlink(loop, loop))
	d.env = append(d.env, "VERCEL_AUTH_CONFIG_DIR="+d.home)
	got = d.run("", "ls")
	assert.Equal(t, 4, got.code)
	assert.Contains(t, got.stderr, loop)
}
