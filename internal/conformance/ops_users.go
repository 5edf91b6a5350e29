package conformance

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/go-vercel/sandbox"
)

type names struct {
	Username  string `json:"username"`
	Groupname string `json:"groupname"`
}

// named returns the object that a call is made on and the names passed to it.
func named[T any](c *call) (T, names, error) {
	var n names
	t, err := on[T](c)
	if err == nil {
		err = c.args(&n)
	}
	return t, n, err
}

var linuxName = regexp.MustCompile(`^[a-z_][a-z0-9_-]*$`)

// badName replaces the text of the error for an invalid user or group name by
// JavaScript's.
func badName(err error, kind, name string) error {
	if err == nil || !errors.Is(err, sandbox.ErrInvalid) {
		return err
	}
	switch {
	case name == "":
		return &textError{fmt.Sprintf("Invalid %s: must not be empty", kind), err}
	case len(name) > 32:
		return &textError{fmt.Sprintf("Invalid %s %q: must be at most 32 characters", kind, name), err}
	case !linuxName.MatchString(name):
		return &textError{fmt.Sprintf(
			"Invalid %s \"%s\": must match /%s/ (lowercase letters, digits, hyphens, underscores)", kind, name, linuxName,
		), err}
	default:
		return err
	}
}

// badNames is badName for calls with a user and a group; the user is checked
// first.
func badNames(err error, n names) error {
	if n.Username == "" || len(n.Username) > 32 || !linuxName.MatchString(n.Username) {
		return badName(err, "username", n.Username)
	}
	return badName(err, "group name", n.Groupname)
}

func opCreateUser(c *call) (any, error) {
	sb, n, err := named[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	u, err := sb.CreateUser(c.ctx, n.Username)
	if err != nil {
		return nil, badName(err, "username", n.Username)
	}
	return u, nil
}

func opAsUser(c *call) (any, error) {
	sb, n, err := named[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	u, err := sb.AsUser(n.Username)
	if err != nil {
		return nil, badName(err, "username", n.Username)
	}
	return u, nil
}

func opCreateGroup(c *call) (any, error) {
	sb, n, err := named[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	g, err := sb.CreateGroup(c.ctx, n.Groupname)
	if err != nil {
		return nil, badName(err, "group name", n.Groupname)
	}
	return map[string]any{"groupname": g.Name, "sharedDir": g.SharedDir}, nil
}

func opAddUserToGroup(c *call) (any, error) {
	sb, n, err := named[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	return nil, badNames(sb.AddUserToGroup(c.ctx, n.Username, n.Groupname), n)
}

func opRemoveUserFromGroup(c *call) (any, error) {
	sb, n, err := named[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	return nil, badNames(sb.RemoveUserFromGroup(c.ctx, n.Username, n.Groupname), n)
}

func opAddToGroup(c *call) (any, error) {
	u, n, err := named[*sandbox.User](c)
	if err != nil {
		return nil, err
	}
	return nil, badName(u.AddToGroup(c.ctx, n.Groupname), "group name", n.Groupname)
}

func opRemoveFromGroup(c *call) (any, error) {
	u, n, err := named[*sandbox.User](c)
	if err != nil {
		return nil, err
	}
	return nil, badName(u.RemoveFromGroup(c.ctx, n.Groupname), "group name", n.Groupname)
}
