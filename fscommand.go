package sandbox

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

// operands puts "--" before paths when one of them would be taken for an
// option. It is left out otherwise, so that ordinary requests are those of the
// official SDK.
func operands(paths ...string) []string {
	for _, p := range paths {
		if strings.HasPrefix(p, "-") {
			return append([]string{"--"}, paths...)
		}
	}
	return paths
}

// run runs a program for a file operation and returns what it wrote to its
// standard output. A program that fails is an *FSError.
func (f *FileSystem) run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := runFor(ctx, f.t, name, args, nil)
	if fe, ok := errors.AsType[*FSError](err); ok && !fe.understood() {
		again, errAgain := runFor(ctx, f.t, name, args, map[string]string{"LC_ALL": "C"})
		if _, ok := errors.AsType[*FSError](errAgain); ok || errAgain == nil {
			return again, errAgain
		}
	}
	return out, err
}

// query is run for programs that print a name and change nothing. Output that
// was not UTF-8, and so did not survive the way here, is asked for again in an
// encoding that does.
func (f *FileSystem) query(ctx context.Context, name string, args ...string) (string, error) {
	out, err := f.run(ctx, name, args...)
	if err != nil || !strings.ContainsRune(out, utf8.RuneError) {
		return out, err
	}
	name, args = encoded(name, args)
	if out, err = f.run(ctx, name, args...); err != nil {
		return "", err
	}
	decoded, err := base64.StdEncoding.DecodeString(out)
	return string(decoded), err
}

// encoded wraps a command so that its output is base64.
func encoded(name string, args []string) (string, []string) {
	const script = `set -o pipefail; "$@" | base64`
	return "bash", append([]string{"-c", script, "bash", name}, args...)
}

func runFor(ctx context.Context, t target, name string, args []string, env map[string]string) (string, error) {
	name, args = carry(name, args)
	done, err := t.RunCommand(ctx, name, args, &CommandOptions{Env: env})
	if err != nil {
		return "", err
	}
	if done.ExitCode != 0 {
		stderr, err := done.Stderr(ctx)
		if err != nil {
			return "", err
		}
		return "", newFSError(name, done.ExitCode, stderr)
	}
	return done.Stdout(ctx)
}

func newFSError(command string, exitCode int, stderr string) *FSError {
	return &FSError{Errno: errnoOf(stderr), Command: command, ExitCode: exitCode, Message: stderr}
}

// line cuts the newline that ends a program's answer, and nothing else: a name
// can begin and end with white space.
func line(out string) string { return strings.TrimSuffix(out, "\n") }

// carry rewrites a command whose arguments JSON can't carry, because they are
// not UTF-8, into one that says them in bash's quotes. Others stay as they are.
func carry(name string, args []string) (string, []string) {
	whole := true
	for _, a := range args {
		whole = whole && utf8.ValidString(a)
	}
	if whole {
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
