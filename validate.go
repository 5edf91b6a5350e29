package sandbox

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-vercel/sandbox/internal/api"
)

// checkName refuses sandbox names that would reach another route of the API.
func checkName(field, name string) error {
	switch name {
	case "":
		return invalid(field, "is empty; a sandbox name is needed")
	case ".", "..", "sessions", "snapshots":
		return invalid(field, "%q can't be the name of a sandbox: the API has another meaning for it", name)
	}
	return checkText(field, name)
}

// checkID refuses IDs that would reach another route of the API. The argument
// is called id everywhere.
func checkID(id string) error {
	const field = "id"
	switch id {
	case "":
		return invalid(field, "is empty; an ID is needed")
	case ".", "..", "tree":
		return invalid(field, "%q can't be an ID: the API has another meaning for it", id)
	}
	return checkText(field, id)
}

// checkRoute refuses names and IDs that would reach another route than the
// operation's, wherever they come from: an argument, JSON, or the API itself.
func checkRoute(req *api.Request) error {
	for placeholder, value := range req.Op.Values(req.Path) {
		check := checkID
		if placeholder == "sandbox" {
			check = func(name string) error { return checkName("name", name) }
		}
		if err := check(value); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses what can't be carried in JSON or in a process's arguments.
func checkText(field, s string) error {
	if !utf8.ValidString(s) {
		return invalid(field, "is not valid UTF-8")
	}
	if strings.IndexByte(s, 0) >= 0 {
		return invalid(field, "contains a NUL byte")
	}
	return nil
}

func checkPorts(field string, ports []int) error {
	for i, p := range ports {
		if p < 1 || p > 65535 {
			return invalid(field, "port %d (number %d of the list) is outside 1 to 65535", p, i+1)
		}
	}
	return nil
}

func checkDuration(field string, d time.Duration) error {
	if d < 0 {
		return invalid(field, "%v is negative", d)
	}
	if d > 0 && d < time.Millisecond {
		return invalid(field, "%v is below a millisecond, the API's unit", d)
	}
	return nil
}

func checkOptionalDuration(field string, d *time.Duration) error {
	if d == nil {
		return nil
	}
	return checkDuration(field, *d)
}

// checkEnv refuses variables that no process could be given. Values are never
// part of the message.
func checkEnv(field string, env map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") || !utf8.ValidString(k) {
			return invalid(field, "%q can't be the name of a variable", k)
		}
		if strings.IndexByte(env[k], 0) >= 0 {
			return invalid(field, "the value of %s contains a NUL byte", k)
		}
		if !utf8.ValidString(env[k]) {
			return invalid(field, "the value of %s is not valid UTF-8", k)
		}
	}
	return nil
}

func checkPrivate(private map[string]any) error {
	for _, k := range slices.Sorted(maps.Keys(private)) {
		if !strings.HasPrefix(k, "__") {
			return invalid("Private", "%q does not begin with __", k)
		}
	}
	return nil
}

// Mkdir makes a directory, in one request of the file API and without more
// meaning than that has: see [FileSystem.Mkdir] and [FileSystem.MkdirAll] for
// errors that can be told apart. The path is sent as it is given.
func (s *Sandbox) Mkdir(ctx context.Context, path string) error { return s.mkdir(ctx, path) }

// Mkdir is as [Sandbox.Mkdir], but does not resume a session that has stopped.
func (s *Session) Mkdir(ctx context.Context, path string) error { return s.mkdir(ctx, path) }
