package oidc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Scope is a project and the team that owns it.
type Scope struct {
	TeamID, ProjectID string
}

// Link returns the project that the directory, or the nearest of its parents
// that is linked, is linked to. The team may be empty. If there is no link, the
// error matches ErrNotLinked.
func (h *Host) Link() (Scope, error) {
	dir := h.Dir
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return Scope{}, fmt.Errorf("looking for a linked project: %w", err)
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Scope{}, fmt.Errorf("looking for a linked project: %w", err)
	}
	start, strangers := dir, ""
	// As in the official tools, the root directory itself does not count.
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		file := filepath.Join(dir, ".vercel", "project.json")
		if !trusted(file, start) {
			strangers = file
			continue
		}
		o, err := readObject(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Scope{}, fmt.Errorf("the linked project: %w", err)
		}
		var scope Scope
		if err := errors.Join(o.get(file, "projectId", &scope.ProjectID), o.get(file, "orgId", &scope.TeamID)); err != nil {
			return Scope{}, fmt.Errorf("the linked project: %w", err)
		}
		if scope.ProjectID == "" {
			return Scope{}, fmt.Errorf("the linked project: %s is broken: it has no projectId (run `vercel link` again)", file)
		}
		// The directory may be anyone's work, and the IDs become parts of
		// paths.
		err = checkID("projectId", scope.ProjectID)
		if err == nil && scope.TeamID != "" {
			err = checkID("orgId", scope.TeamID)
		}
		if err != nil {
			return Scope{}, fmt.Errorf("the linked project: %s is broken: %w", file, err)
		}
		return scope, nil
	}
	if strangers != "" {
		return Scope{}, fmt.Errorf("%w; %s belongs to another user and does not count", ErrNotLinked, strangers)
	}
	return Scope{}, ErrNotLinked
}

// trusted reports whether a link belongs to the user, to root, or to the owner
// of the working directory. Anyone may have put one in a directory above it,
// such as /tmp, and it would choose the project that receives the user's code.
func trusted(file, start string) bool {
	mine := []uint32{0}
	if uid := os.Geteuid(); uid >= 0 {
		mine = append(mine, uint32(uid))
	}
	if info, err := os.Stat(start); err == nil {
		if uid, ok := owner(info); ok {
			mine = append(mine, uid)
		}
	}
	// The directory too: its owner can put another file there. A link also belongs
	// to who made it, who may have chosen another of the user's own projects.
	for _, name := range []string{file, filepath.Dir(file)} {
		for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
			info, err := stat(name)
			if err != nil {
				return true // it does not exist, or reading it reports what is wrong
			}
			if uid, ok := owner(info); ok && !slices.Contains(mine, uid) {
				return false
			}
		}
	}
	return true
}
