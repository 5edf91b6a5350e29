package oidc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Scope is a project and the team that owns it.
type Scope struct {
	TeamID, ProjectID string
}

// Link returns the project that the directory is linked to, or otherwise that of its
// nearest linked parent. The team may be empty. If there is no link, the error matches
// ErrNotLinked.
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
	start := dir
	var foreign error
	// As in the official tools, the root directory itself does not count.
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		file := filepath.Join(dir, ".vercel", "project.json")
		data, err := ReadOwn(file, start)
		switch {
		case errors.Is(err, ErrForeign):
			foreign = err
			continue
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			return Scope{}, fmt.Errorf("the linked project: %w", err)
		}
		o, err := parseObject(file, data)
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
		// The directory may be untrusted, and the IDs become parts of paths.
		err = checkID("projectId", scope.ProjectID)
		if err == nil && scope.TeamID != "" {
			err = checkID("orgId", scope.TeamID)
		}
		if err != nil {
			return Scope{}, fmt.Errorf("the linked project: %s is broken: %w", file, err)
		}
		return scope, nil
	}
	if foreign != nil {
		return Scope{}, fmt.Errorf("%w; %w", ErrNotLinked, foreign)
	}
	return Scope{}, ErrNotLinked
}

// ErrForeign matches the error for a file of the working directory that belongs to
// another user.
var ErrForeign = errors.New("belongs to another user and does not count")

// ReadOwn reads a file in the working directory dir or a parent. All code must use it for
// a file that determines an account, an address or a program. The file must belong to the
// user, to root, or to the owner of dir; otherwise the error matches ErrForeign.
func ReadOwn(file, dir string) ([]byte, error) {
	trusted := trustedUsers(dir)
	data, info, err := readFile(file)
	if !belongsTo(file, trusted) || info != nil && !ownedBy(info, trusted) {
		return nil, fmt.Errorf("%s %w", file, ErrForeign)
	}
	return data, err
}

// trustedUsers returns the users whose files are trusted in a working directory.
func trustedUsers(dir string) []uint32 {
	trusted := []uint32{0}
	if uid := os.Geteuid(); uid >= 0 {
		trusted = append(trusted, uint32(uid))
	}
	if info, err := os.Stat(dir); err == nil {
		if uid, ok := owner(info); ok {
			trusted = append(trusted, uid)
		}
	}
	return trusted
}

func ownedBy(info fs.FileInfo, trusted []uint32) bool {
	uid, ok := owner(info)
	return !ok || slices.Contains(trusted, uid)
}

// belongsTo reports whether a file, its directory, and symbolic links to them belong to
// one of the users. The owner of the directory can replace the file, and the owner of a
// link can point it to another file of the user. In a directory such as /tmp anyone can
// create a file, which would determine the project that receives the user's code.
func belongsTo(file string, trusted []uint32) bool {
	for _, name := range []string{file, filepath.Dir(file)} {
		for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
			info, err := stat(name)
			if err != nil {
				return true // it does not exist, or reading it returns the error
			}
			if !ownedBy(info, trusted) {
				return false
			}
		}
	}
	return true
}
