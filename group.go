package sandbox

import (
	"context"
	"fmt"

	"github.com/go-vercel/sandbox/internal/accounts"
)

// Group is a group of users of a sandbox.
type Group struct {
	// Name is the name of the group.
	Name string
	// SharedDir is a directory that all members can write to. Files created in
	// it belong to the group.
	SharedDir string
}

// CreateGroup adds a group and a directory /shared/NAME for its members. If a
// step fails, the error is a [*UserError].
func (s *Sandbox) CreateGroup(ctx context.Context, groupname string) (*Group, error) {
	if err := checkUserName("groupname", groupname); err != nil {
		return nil, err
	}
	g := &Group{Name: groupname, SharedDir: "/shared/" + groupname}
	names := s.accountNames()
	steps := append(names.Whoami(),
		accounts.Program(fmt.Sprintf("create group %q", groupname), "groupadd", groupname),
		accounts.Program("create shared directory "+g.SharedDir, "mkdir", "-p", g.SharedDir))
	steps = append(steps, accounts.Chown(accounts.Mine, groupname, g.SharedDir)...)
	if err := s.accountSteps(ctx, names, append(steps, accounts.Chmod("2770", g.SharedDir)...)); err != nil {
		return nil, err
	}
	return g, nil
}

// AddUserToGroup makes a user a member of a group. Running processes of the
// user are not affected.
func (s *Sandbox) AddUserToGroup(ctx context.Context, username, groupname string) error {
	if err := checkUserName("username", username); err != nil {
		return err
	}
	if err := checkUserName("groupname", groupname); err != nil {
		return err
	}
	_, err := s.accountStep(ctx, fmt.Sprintf("add %q to group %q", username, groupname), true, "usermod", "-aG", groupname, username)
	return userError(err)
}

// RemoveUserFromGroup removes a user from a group. Running processes of the
// user are not affected.
func (s *Sandbox) RemoveUserFromGroup(ctx context.Context, username, groupname string) error {
	if err := checkUserName("username", username); err != nil {
		return err
	}
	if err := checkUserName("groupname", groupname); err != nil {
		return err
	}
	_, err := s.accountStep(ctx, fmt.Sprintf("remove %q from group %q", username, groupname), true, "gpasswd", "-d", username, groupname)
	return userError(err)
}

// AddToGroup makes the user a member of a group.
func (u *User) AddToGroup(ctx context.Context, groupname string) error {
	return u.sandbox.AddUserToGroup(ctx, u.username, groupname)
}

// RemoveFromGroup removes the user from a group.
func (u *User) RemoveFromGroup(ctx context.Context, groupname string) error {
	return u.sandbox.RemoveUserFromGroup(ctx, u.username, groupname)
}
