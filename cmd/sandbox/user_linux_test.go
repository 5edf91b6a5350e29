package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestUser runs commands as users that the sandbox has from the start. For a user or a
// directory that can't be used, the error says why.
func TestUser(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	if d.server.Mode() == sandboxtest.Folder {
		needs.Other(t, "in folder mode the users are the machine's")
	}
	d.ok("create", "--name", "c")
	if made := d.run("", "exec", "--sudo", "c", "--", "useradd", "--create-home", "eve"); strings.Contains(made.stderr, "one user only") {
		needs.Other(t, "sandboxes have one user here")
	}
	d.ok("exec", "--sudo", "c", "--", "useradd", "--create-home", "--home-dir", "/srv/db", "db")
	d.ok("exec", "--sudo", "c", "--", "chmod", "700", "/srv/db")
	for _, row := range []struct {
		want string
		line []string
	}{
		{"/home/eve", []string{"--user", "eve", "c", "pwd"}},
		{"/root", []string{"--user", "root", "c", "pwd"}},
		{"/srv/db", []string{"--user", "db", "c", "pwd"}}, // the home of db is not below /home
		{"/srv/db", []string{"-i", "--user", "db", "c", "pwd"}},
		{"/srv/db", []string{"--user", "db", "c", "sh", "-c", "pwd; exit 1"}},
		{"nobody", []string{"--user", "nobody", "--workdir", "/", "c", "whoami"}},
		{"/", []string{"--user", "eve", "--workdir", "../..", "c", "pwd"}}, // relative to the sandbox's directory, as without --user
		{"1", []string{"--user", "db", "--env", "A=1", "c", "printenv", "A"}},
	} {
		got := d.run("", append([]string{"exec", "--no-echo"}, row.line...)...)
		assert.Equal(t, row.want, strings.TrimSpace(got.stdout), row.line)
		assert.Empty(t, got.stderr, row.line)
	}
	for line, want := range map[string][]string{
		"exec --user nobody c -- pwd":               {"user nobody has no home: there is no directory /nonexistent in sandbox c", "--workdir /tmp"},
		"exec -d --user nobody c -- pwd":            {"user nobody has no home"},
		"exec -i --user nobody c -- pwd":            {"user nobody has no home"},
		"run --name c --user nobody -- pwd":         {"user nobody has no home"},
		"exec --user nosuch c -- true":              {"sandbox c has no user nosuch", "sandbox exec --sudo c -- useradd --create-home nosuch"},
		"exec --user eve --workdir /nosuch c -- ls": {"there is no directory /nosuch in sandbox c"},
		"exec --user eve --workdir /srv/db c -- ls": {"user eve may not enter the directory /srv/db of sandbox c", "--workdir /tmp"},
	} {
		got := d.run("", strings.Fields(line)...)
		assert.Equal(t, 125, got.code, line)
		assert.Empty(t, got.stdout, line)
		first, more, _ := strings.Cut(got.stderr, "\n")
		assert.True(t, strings.HasPrefix(first, "error: "+want[0]), "%s: %s", line, first)
		for _, hint := range want[1:] {
			assert.Contains(t, more, hint, line)
		}
	}
	s := d.inTerminal("connect", "--user", "nobody", "--workdir", "/", "c")
	s.press("echo $(whoami) in $(pwd); exit 3\r")
	s.until("nobody in /\r\n")
	assert.Equal(t, 3, s.ended())
	s = d.inTerminal("exec", "-it", "--user", "db", "c", "pwd")
	s.until("/srv/db\r\n")
	assert.Equal(t, 0, s.ended())
	s = d.inTerminal("connect", "--user", "nobody", "c")
	s.until("user nobody has no home")
	assert.Equal(t, 125, s.ended())
	got := d.run("", "exec", "--sudo", "--user", "eve", "c", "true")
	assert.Equal(t, 2, got.code)
	assert.Contains(t, got.stderr, "--sudo and --user exclude each other")
}
