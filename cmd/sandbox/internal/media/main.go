//go:build unix

// Media makes the pictures of docs/cli.md: it runs the program at a terminal,
// against an emulator, and draws what is on the screen.
//
//	go run ./internal/media PROGRAM DIR
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/creack/pty"

	"github.com/go-vercel/sandbox/sandboxtest"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: media PROGRAM DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "media:", err)
		os.Exit(1)
	}
}

// shot is a picture to be taken.
type shot struct {
	name string
	args []string
	cols int
	// when is a pattern: the picture is taken as soon as it fits what is on the
	// screen. Empty waits for the end of the program.
	when string
}

// studio is what pictures are taken in.
type studio struct {
	program, dir string
	env          []string
}

func run(program, dir string) error {
	server, err := sandboxtest.NewServer(nil)
	if err != nil {
		return err
	}
	defer server.Close()
	home, err := os.MkdirTemp("", "media-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	c := server.Credentials()
	s := &studio{program: program, dir: home, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm-256color", "VERCEL_SANDBOX_BASE_URL=" + server.URL,
		"VERCEL_AUTH_TOKEN=" + c.Token, "SANDBOX_SCOPE=" + c.TeamID, "SANDBOX_PROJECT=" + c.ProjectID,
	}}
	for _, args := range [][]string{
		{"create", "--name", "web", "-p", "3000", "--tag", "env=prod", "--timeout", "45m", "--vcpus", "4"},
		{"create", "--name", "ci-1287", "--tag", "env=ci", "--runtime", "node24"},
		{"create", "--name", "notebook", "--image", "vercel/sandbox/python:3.14"},
		{"exec", "web", "--", "sh", "-c", "yes > /dev/null & sleep 0.1"},
	} {
		if out, err := s.command(args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", args, err, out)
		}
	}
	if err := bigFile(filepath.Join(home, "dataset.bin")); err != nil {
		return err
	}
	for _, p := range []shot{
		{"ls", []string{"ls"}, 172, ""},
		{"top", []string{"top", "--once"}, 110, ""},
		{"cp", []string{"cp", "dataset.bin", "notebook:/vercel/"}, 120, ` [4-8]\d% `},
		{"doctor", []string{"doctor"}, 120, ""},
	} {
		picture, err := s.take(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cli-"+p.name+".svg"), []byte(picture), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// bigFile makes a file that takes a moment to copy.
func bigFile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	source, err := os.Open("/dev/urandom")
	if err != nil {
		return err
	}
	defer source.Close()
	if _, err := io.CopyN(f, source, 512<<20); err != nil {
		return err
	}
	return f.Close()
}

func (s *studio) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

func (s *studio) take(p shot) (string, error) {
	cmd := s.command(p.args...)
	tty, err := pty.StartWithAttrs(cmd, &pty.Winsize{Rows: 40, Cols: uint16(p.cols)}, &syscall.SysProcAttr{Setsid: true, Setctty: true})
	if err != nil {
		return "", err
	}
	defer tty.Close()
	var seen bytes.Buffer
	buf := make([]byte, 4096)
	when, err := regexp.Compile(p.when)
	if err != nil {
		return "", err
	}
	for {
		n, err := tty.Read(buf)
		seen.Write(buf[:n])
		if err != nil || p.when != "" && when.Match(seen.Bytes()) {
			break
		}
	}
	sc := &screen{cols: p.cols}
	sc.write("\x1b[32m$\x1b[0m sandbox " + strings.Join(p.args, " ") + "\n" + strings.ReplaceAll(seen.String(), "\r\n", "\n"))
	if p.when != "" {
		_ = cmd.Process.Kill() // it has been seen
	}
	_ = cmd.Wait() // what it showed counts
	return sc.svg("sandbox " + strings.Join(p.args, " ")), nil
}
