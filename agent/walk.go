package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-vercel/sandbox/internal/filefilter"
)

// maxVisited is how many files and directories walk visits.
const maxVisited = 50_000

// foundFile is a file that walk has found.
type foundFile struct {
	name string // relative to the directory of the search
	size int64
	link bool // it is a symbolic link
}

// walk lists the regular files and links below root in lexical order. If root is a file,
// the list contains only ".". more tells the model if walk has not visited everything.
func (c *call) walk(ctx context.Context, root, pattern string) (list []foundFile, more string, err error) {
	var include []string
	if pattern != "" {
		if include, err = expandPattern(pattern); err != nil {
			return nil, "", err
		}
	}
	filter, err := filefilter.New(include, nil)
	if err != nil {
		return nil, "", modelErrorf("The pattern is not valid.")
	}
	ctx, cancel := context.WithTimeout(ctx, c.limits().Timeout)
	defer cancel()
	visited, skipped, dirs := 0, 0, 0
	err = c.sb.FS().WalkDir(ctx, root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			if pe, ok := errors.AsType[*fs.PathError](err); ok {
				err = &fs.PathError{Op: pe.Op, Path: root, Err: pe.Err}
			}
			return err
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil: // it was removed in the meantime, or permission is denied
			skipped++
			return nil
		case name == "." && !d.IsDir():
			info, err := d.Info()
			if err == nil && !info.Mode().IsRegular() {
				err = modelErrorf("%s is not a regular file.", oneLine(root))
			}
			if err == nil {
				list = []foundFile{{name: ".", size: info.Size()}}
			}
			return err
		case d.IsDir() && d.Name() == ".git":
			if strings.Contains(pattern, ".git") {
				more = " .git is left out: list its files by bash."
			}
			return fs.SkipDir
		case d.IsDir() && name != "." && pattern != "" && filter.Included(name):
			dirs++
		}
		if visited++; visited > maxVisited {
			more = fmt.Sprintf(" Only the first %d files and directories were looked at: give a narrower path.", maxVisited)
			return fs.SkipAll
		}
		link := d.Type()&fs.ModeSymlink != 0
		if (d.Type().IsRegular() || link) && filter.Included(name) {
			f := foundFile{name: name, link: link}
			if info, err := d.Info(); err == nil {
				f.size = info.Size()
			}
			list = append(list, f)
		}
		return nil
	})
	if len(list) == 0 && dirs > 0 {
		more += fmt.Sprintf(" %d directories match: add /** for what is in them.", dirs)
	}
	if skipped > 0 {
		more += fmt.Sprintf(" %d directories could not be read.", skipped)
	}
	return list, more, err
}
