package oidc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Scope is a project and the team that owns it.
type Scope struct {
	TeamID, ProjectID string
}

// Link is the project that the folder, or the nearest of its parents that has
// one, is linked to. The team may be empty. The error matches ErrNotLinked
// when there is no link.
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
	// As in the official tools the root folder itself does not count.
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		file := filepath.Join(dir, ".vercel", "project.json")
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
		// The folder may be anybody's work, and the IDs become parts of paths.
		err = checkID("projectId", scope.ProjectID)
		if err == nil && scope.TeamID != "" {
			err = checkID("orgId", scope.TeamID)
		}
		if err != nil {
			return Scope{}, fmt.Errorf("the linked project: %s is broken: %w", file, err)
		}
		return scope, nil
	}
	return Scope{}, ErrNotLinked
}
