package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// hostile makes a sandbox with a program of its own in place of one that sync
// uses.
func (d *desk) hostile(name, program, script string) {
	d.t.Helper()
	if os.Getuid() != 0 {
		needs.Missing(d.t, "replacing programs of a sandbox needs the emulator's own root file system, and so root")
	}
	d.ok("create", "--name", name)
	d.ok("exec", "--sudo", name, "--", "sh", "-c", `p=/usr/local/bin/$1; printf '#!/bin/bash\n%s\n' "$2" >$p && chmod 755 $p`, "sh", program, script)
}

// TestHostileSync syncs from sandboxes whose files and programs are made to write
// what Git runs, or what an ignore file names.
func TestHostileSync(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.write("dst/.gitignore", "keys/\n")
	d.write("dst/keys/authorized_keys", "mine\n")
	untouched := func(what string) {
		t.Helper()
		for _, name := range []string{"lib/.git", ".git", "sub/.git", "sub/keys", ".GIT", "odd/git~1"} {
			assert.NoDirExists(t, filepath.Join(d.dir, "dst", name), what)
		}
		text, err := os.ReadFile(filepath.Join(d.dir, "dst/keys/authorized_keys"))
		require.NoError(t, err)
		assert.Equal(t, "mine\n", string(text), what)
	}
	const files = `mkdir -p $1/lib/.git/hooks $1/.GIT/hooks $1/odd/git~1 $1/sub/.git/hooks $1/sub/keys $1/keys
for f in lib/.git/hooks/post-checkout .GIT/hooks/x odd/git~1/x sub/.git/hooks/x sub/keys/authorized_keys keys/authorized_keys; do echo evil >$1/$f; chmod 755 $1/$f; done
echo fine >$1/fine.txt`

	d.ok("create", "--name", "plain")
	d.ok("exec", "plain", "--", "sh", "-c", files, "sh", "/tmp/s")
	d.ok("sync", "plain:/tmp/s", "dst")
	assert.FileExists(t, filepath.Join(d.dir, "dst/fine.txt"))
	untouched("its files")

	// A listing that calls a directory a file.
	d.hostile("lists", "find", `printf '%s\0' sub f 1 1 644 '' keys2 l 0 1 777 x`)
	d.ok("exec", "lists", "--", "sh", "-c", files, "sh", "/tmp/s")
	got := d.run("", "sync", "lists:/tmp/s", "dst")
	assert.Equal(t, 1, got.code, got.stderr)
	assert.Contains(t, got.stderr, "not of the kind")
	untouched("a listing that lies")

	// An archive of other things than those that were asked for.
	d.hostile("packs", "tar", `cat >/dev/null; cd /tmp/s; exec /usr/bin/tar -cf - lib/.git fine.txt keys`)
	d.ok("exec", "packs", "--", "sh", "-c", files, "sh", "/tmp/s")
	d.ok("exec", "packs", "--", "sh", "-c", "echo changed >/tmp/s/fine.txt")
	got = d.run("", "sync", "packs:/tmp/s", "dst")
	assert.Equal(t, 1, got.code, got.stderr)
	assert.Contains(t, got.stderr, "not requested")
	untouched("an archive that lies")
	// A hard link to what is here already.
	d.hostile("links", "tar", `cat >/dev/null; cd /tmp/s; ln keys/authorized_keys hard; exec /usr/bin/tar -cf - --transform 's,^hard$,fine.txt,S' keys/authorized_keys hard`)
	d.ok("exec", "links", "--", "sh", "-c", files, "sh", "/tmp/s")
	d.ok("exec", "links", "--", "sh", "-c", "echo changed again >/tmp/s/fine.txt")
	assert.Equal(t, 1, d.run("", "sync", "links:/tmp/s", "dst").code)
	untouched("a hard link")

	// Output without end is neither kept nor waited for, and nothing of it acts on
	// the terminal.
	d.hostile("endless", "find", `exec yes`)
	d.ok("exec", "endless", "--", "mkdir", "-p", "/tmp/s")
	got = d.run("", "sync", "endless:/tmp/s", "dst")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "longer than 64 MiB")
	d.hostile("speaks", "find", `printf '\033]52;c;aGVsbG8=\007' >&2; yes >&2 & sleep 1; kill $!; exit 1`)
	d.ok("exec", "speaks", "--", "mkdir", "-p", "/tmp/s")
	got = d.run("", "sync", "speaks:/tmp/s", "dst")
	assert.Equal(t, 1, got.code)
	assert.NotContains(t, got.stderr, "\x1b")
	assert.Less(t, len(got.stderr), 16<<10)
}
