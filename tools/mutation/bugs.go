package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bug is one line of the code and what a mistake would make of it.
type bug struct {
	name     string
	dir      string // the folder that has the line, in one file or another
	old, now string
	by       []string // the arguments of go test: a package, and -run
}

func (b bug) String() string { return b.name }

// readBugs reads blocks of lines:
//
//	= what is wrong
//	in internal/api
//	- the text as it is, once in the folder
//	+ the text with the mistake
//	by ./internal/api TestRetry|TestOther
func readBugs(file string) ([]bug, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var bugs []bug
	for n, line := range strings.Split(string(text), "\n") {
		key, rest, _ := strings.Cut(line, " ")
		if key == "=" {
			bugs = append(bugs, bug{name: rest})
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(bugs) == 0 {
			return nil, fmt.Errorf("%s:%d: before the first =", file, n+1)
		}
		b := &bugs[len(bugs)-1]
		switch key {
		case "in":
			b.dir = rest
		case "-":
			b.old = rest
		case "+":
			b.now = rest
		case "by":
			b.by = strings.Fields(rest)
		default:
			return nil, fmt.Errorf("%s:%d: %q is no key", file, n+1, key)
		}
	}
	for _, b := range bugs {
		if b.dir == "" || b.old == "" || b.old == b.now || len(b.by) != 2 {
			return nil, fmt.Errorf("%s: %q is not complete", file, b.name)
		}
	}
	return bugs, nil
}

// find returns the file that has the line, and its content.
func (b bug) find(root string) (name string, content []byte, err error) {
	files, err := filepath.Glob(filepath.Join(root, b.dir, "*.go"))
	if err != nil {
		return "", nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", nil, err
		}
		switch n := bytes.Count(text, []byte(b.old)); {
		case n == 0:
		case n > 1 || name != "":
			return "", nil, fmt.Errorf("%q: the text is more than once in %q", b.name, b.dir)
		default:
			name, content = file, text
		}
	}
	if name == "" {
		return "", nil, fmt.Errorf("%q: the text is not in %q: %s", b.name, b.dir, b.old)
	}
	return name, content, nil
}

// try runs the test that is to notice the bug.
func (b bug) try(work string, limit time.Duration) (string, error) {
	name, content, err := b.find(".")
	if err != nil {
		return "", err
	}
	broken := bytes.Replace(content, []byte(b.old), []byte(b.now), 1)
	overlay, err := writeOverlay(work, map[string][]byte{name: broken})
	if err != nil {
		return "", err
	}
	binary := filepath.Join(work, "bug.test")
	cmd := exec.Command("go", "test", "-vet=off", "-c", "-o", binary, "-overlay", overlay)
	cmd.Dir = b.by[0] // which may be in a module of its own
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("does not compile: %s", out)
	}
	return runTests(binary, b.by[0], b.by[1], limit)
}

// runTests runs tests of a binary that was made of a package.
func runTests(binary, pkg, pattern string, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", pattern, "-test.failfast", "-test.short")
	cmd.Dir = pkg
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err == nil && bytes.Contains(out, []byte("no tests to run")) {
		return "", fmt.Errorf("no test of %s matches %s", pkg, pattern)
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		return "", err
	}
	switch {
	case ctx.Err() != nil:
		return hung, nil
	case err != nil:
		return noticed, nil
	}
	return survived, nil
}

// writeOverlay writes what the compiler is to read in place of files.
func writeOverlay(work string, files map[string][]byte) (string, error) {
	replace := map[string]string{}
	for name, content := range files {
		full, err := filepath.Abs(name)
		if err != nil {
			return "", err
		}
		replace[full] = filepath.Join(work, fmt.Sprintf("%d-%s", len(replace), filepath.Base(name)))
		if err := os.WriteFile(replace[full], content, 0o600); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(work, "overlay.json")
	return overlay, os.WriteFile(overlay, data, 0o600)
}
