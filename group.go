package sandbox

import (
	"context"
	"fmt"

	"github.com/go-vercel/sandbox/internal/accounts"
)

// CreateGroup adds a group, for [User.AddToGroup], and returns a directory that
// all members can write to, /shared/NAME. Files created in it belong to the group.
// If a step fails, the error wraps an [*ExitError].
func (s *Sandbox) CreateGroup(ctx context.Context, groupname string) (sharedDir string, err error) {
	if _, err := enter(ctx, s); err != nil {
		return "", err
	}
	if err := checkUserName("groupname", groupname); err != nil {
		return "", err
	}
	sharedDir = "/shared/" + groupname
	names := s.accountNames()
	steps := append(names.Whoami(),
		accounts.Program(fmt.Sprintf("create group %q", groupname), "groupadd", groupname),
		accounts.Program("create shared directory "+sharedDir, "mkdir", "-p", sharedDir))
	steps = append(steps, accounts.Chown(accounts.Mine, groupname, sharedDir)...)
	if err := s.accountSteps(ctx, names, append(steps, accounts.Chmod("2770", sharedDir)...)); err != nil {
		return "", err
	}
	return sharedDir, nil
}

// AddToGroup makes the user a member of a group. Running processes of the user
// are not affected.
func (u *User) AddToGroup(ctx context.Context, groupname string) error {
	return u.changeGroup(ctx, "add %q to group %q", groupname, "usermod", "-aG", groupname, u.Username())
}

// RemoveFromGroup removes the user from a group. Running processes of the user
// are not affected.
func (u *User) RemoveFromGroup(ctx context.Context, groupname string) error {
	return u.changeGroup(ctx, "remove %q from group %q", groupname, "gpasswd", "-d", u.Username(), groupname)
}

func (u *User) changeGroup(ctx context.Context, action, groupname, name string, args ...string) error {
	if _, err := enter(ctx, u); err != nil {
		return err
	}
	if err := checkUserName("groupname", groupname); err != nil {
		return err
	}
	_, err := u.sandbox.accountStep(ctx, fmt.Sprintf(action, u.username, groupname), true, name, args...)
	return told(err)
}
