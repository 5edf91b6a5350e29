//go:build unix

// Terminal makes the pictures of docs/cli.md: it runs the program at a terminal,
// against an emulator, and draws what is on the screen.
//
//	go run ./docs/media/terminal PROGRAM DIR [COLUMNS]
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/creack/pty"

	"github.com/go-vercel/sandbox/sandboxtest"
)

func main() {
	if len(os.Args) < 3 || len(os.Args) > 4 {
		fmt.Fprintln(os.Stderr, "usage: terminal PROGRAM DIR [COLUMNS]")
		os.Exit(2)
	}
	columns := 0
	if len(os.Args) == 4 {
		columns, _ = strconv.Atoi(os.Args[3])
	}
	if err := run(os.Args[1], os.Args[2], columns); err != nil {
		fmt.Fprintln(os.Stderr, "terminal:", err)
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
	// look says that it is no picture of the page.
	look bool
	// cues are patterns of what is on the screen, and what is then done, in order.
	cues []cue
}

type cue struct {
	when string
	do   func(*studio, io.Writer) error
}

// types answers the program's question.
func types(text string) func(*studio, io.Writer) error {
	return func(_ *studio, keys io.Writer) error { _, err := io.WriteString(keys, text); return err }
}

// studio is what pictures are taken in.
type studio struct {
	program, dir string
	env          []string
}

// shots are the pictures, in the order in which they are taken.
var shots = []shot{
	{name: "ls", args: []string{"ls"}, cols: 120},
	{name: "cp", args: []string{"cp", "dataset.bin", "notebook:/vercel/"}, cols: 120, when: ` [4-8]\d% `},
	{name: "doctor", args: []string{"doctor"}, cols: 120},
	{name: "help", args: []string{"--help"}, cols: 120, look: true},
	{name: "ls-all", args: []string{"ls", "--all"}, cols: 120, look: true},
	{name: "many", args: []string{"cp", "--progress", "many", "notebook:/vercel/"}, cols: 120, when: `[4-9]\d%  `, look: true},
	{name: "error", args: []string{"exec", "wbe", "--", "npm", "test"}, cols: 120, look: true},
	{name: "first", args: []string{"--local", "run", "--rm", "--", "python3", "-c", "print(6 * 7)"}, cols: 120, look: true},
	{name: "rm", args: []string{"rm", "--status", "stopped", "--tag", "env=ci"}, cols: 120, cues: []cue{{`\[y/N\]`, types("y\n")}}},
	{name: "local", args: []string{"local", "status"}, cols: 120},
}

// run takes the pictures of the page, or, in so many columns, those of all there is to
// look at.
func run(program, dir string, columns int) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
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
	defer func() { _ = s.command("local", "stop").Run() }()
	if err := s.furnish(); err != nil {
		return err
	}
	for _, p := range shots {
		if p.look && columns == 0 {
			continue
		}
		if columns > 0 {
			p.cols = columns
		}
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

// furnish makes what the pictures show.
func (s *studio) furnish() error {
	for _, args := range [][]string{
		{"create", "--name", "web", "-p", "3000", "--tag", "env=prod", "--timeout", "45m", "--vcpus", "4"},
		{"create", "--name", "ci-1287", "--tag", "env=ci", "--runtime", "node24"},
		{"create", "--name", "notebook", "--image", "vercel/sandbox/python:3.14"},
		{"exec", "web", "--", "sh", "-c", "yes > /dev/null & sleep 0.1"},
		{"create", "--name", "ci-1285", "--tag", "env=ci"},
		{"create", "--name", "ci-1286", "--tag", "env=ci"},
		{"stop", "ci-1285", "ci-1286"},
		{"--local", "create", "--name", "scratch", "-p", "8080"},
	} {
		if out, err := s.command(args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", args, err, out)
		}
	}
	if err := bigFile(filepath.Join(s.dir, "dataset.bin")); err != nil {
		return err
	}
	for i := range 6000 {
		if err := s.write(fmt.Sprintf("many/%d", i), "some text\n"); err != nil {
			return err
		}
	}
	return s.write("site/index.html", "<h1>Hello</h1>")
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

func (s *studio) write(name, text string) error {
	name = filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
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
	cues := p.cues
	for {
		n, err := tty.Read(buf)
		seen.Write(buf[:n])
		if len(cues) > 0 && regexp.MustCompile(cues[0].when).Match(seen.Bytes()) {
			if err := cues[0].do(s, tty); err != nil {
				return "", err
			}
			cues = cues[1:]
		}
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
