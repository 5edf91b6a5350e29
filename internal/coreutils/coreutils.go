// Package coreutils works on the files of a Linux machine by running programs of GNU
// coreutils and findutils there and parsing their output. A [Runner] runs the programs.
package coreutils

import (
	"context"
	"encoding/base64"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Call is a program to run. Name and Args are valid UTF-8 without NUL.
type Call struct {
	Name string
	Args []string
	// Stdout receives the standard output as it arrives. Nil adds it to the result.
	Stdout io.Writer
}

// Result is how a program ended.
type Result struct {
	ExitCode       int
	Stdout, Stderr string
}

// Runner runs a program, with English messages, and waits for it to end. A non-zero exit
// code is not an error.
type Runner func(ctx context.Context, c Call) (Result, error)

// Operands inserts "--" before paths if one of them looks like an option. Otherwise it
// adds nothing, so that ordinary requests equal the official SDK's.
func Operands(paths ...string) []string {
	if slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, "-") }) {
		return append([]string{"--"}, paths...)
	}
	return paths
}

// Run runs a program and returns its standard output. If the program fails, the
// error is an [*Error].
func (run Runner) Run(ctx context.Context, name string, args ...string) (string, error) {
	return run.once(ctx, Call{Name: name, Args: args})
}

// Script runs a shell script with arguments.
func (run Runner) Script(ctx context.Context, script string, args ...string) (string, error) {
	return run.once(ctx, Call{Name: "sh", Args: append([]string{"-c", script, "sh"}, args...)})
}

// Query is like Run, for programs that print a name and change nothing. Output that is not
// UTF-8 is changed in transit. Query then runs the program again with encoded output.
func (run Runner) Query(ctx context.Context, name string, args ...string) (string, error) {
	out, err := run.Run(ctx, name, args...)
	if err != nil || !strings.ContainsRune(out, utf8.RuneError) {
		return line(out), err
	}
	name, args = encoded(name, args)
	if out, err = run.Run(ctx, name, args...); err != nil {
		return "", err
	}
	decoded, err := base64.StdEncoding.DecodeString(out)
	return line(string(decoded)), err
}

// Test reports whether a program exits with code zero.
func (run Runner) Test(ctx context.Context, name string, args ...string) (bool, error) {
	name, args = Carry(name, args)
	res, err := run(ctx, Call{Name: name, Args: args})
	return err == nil && res.ExitCode == 0, err
}

func (run Runner) once(ctx context.Context, c Call) (string, error) {
	c.Name, c.Args = Carry(c.Name, c.Args)
	res, err := run(ctx, c)
	if err != nil {
		return "", err
	}
	if res.ExitCode != 0 {
		return "", NewError(c.Name, res.ExitCode, res.Stderr)
	}
	return res.Stdout, nil
}

// encoded wraps a command so that its output is base64.
func encoded(name string, args []string) (string, []string) {
	const script = `set -o pipefail; "$@" | base64`
	return "bash", append([]string{"-c", script, "bash", name}, args...)
}

// line removes the newline at the end of a program's output, and nothing else: a name may
// start and end with white space.
func line(out string) string { return strings.TrimSuffix(out, "\n") }

// Carry rewrites a command whose arguments are not UTF-8, and so can't be sent as JSON,
// as one that quotes them for bash. It returns other commands unchanged.
func Carry(name string, args []string) (string, []string) {
	valid := true
	for _, a := range args {
		valid = valid && utf8.ValidString(a)
	}
	if valid {
		return name, args
	}
	var script strings.Builder
	script.WriteString("exec " + bashQuote(name))
	for _, a := range args {
		script.WriteString(" " + bashQuote(a))
	}
	return "bash", []string{"-c", script.String()}
}

// bashQuote quotes s so that bash reads it as one word of exactly these bytes.
func bashQuote(s string) string {
	const hex = "0123456789abcdef"
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			b.WriteString(`\x`)
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
