package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// heart is code that keeps a promise, and the tests that hold it, nearest first.
type heart struct {
	module string // the folder of the module that has it
	dir    string // below the module
	files  string // patterns, separated by spaces
	rows   int    // how many are chosen
	tests  [][2]string
	// only, if not nil, chooses less.
	only func(site) bool
}

// list is a file of rows, each of which names a site.
type list struct {
	name   string
	seed   string // chooses rows among all conditions and statements of the code
	hearts []heart
}

// header is the first line of a file of rows.
func (l *list) header(rows []string) string {
	return fmt.Sprintf("# %d rows, chosen by the seed %q; SHA-256 of the rows: %x", len(rows), l.seed, sha256.Sum256([]byte(strings.Join(rows, "\n")+"\n")))
}

// read returns the rows of a file, and whether they are those that its first
// line tells.
func (l *list) read(file string) (rows []string, same bool, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, false, err
	}
	var head string
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		switch {
		case !strings.HasPrefix(line, "#"):
			rows = append(rows, line)
		case head == "":
			head = line
		}
	}
	return rows, head == l.header(rows), nil
}

// find returns the sites that rows name, which may also be bugs of bugs.txt, and the rows whose code is gone.
func (l *list) find(file string, rows []string) (there []site, gone []string, err error) {
	all := map[string]site{}
	for i := range l.hearts {
		some, err := l.sites(i)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range some {
			all[s.row] = s
		}
	}
	bugs, err := readBugs(filepath.Join(filepath.Dir(file), "bugs.txt"))
	if err != nil {
		return nil, nil, err
	}
	for _, b := range bugs {
		all["bug: "+b.name] = site{heart: -1, row: "bug: " + b.name, bug: &b}
	}
	for _, row := range rows {
		if s, ok := all[row]; ok {
			there = append(there, s)
		} else {
			gone = append(gone, row)
		}
	}
	return there, gone, nil
}

// load returns the sites of a file. A row whose code is gone would pass for one
// that was tried.
func (l *list) load(file string) ([]site, error) {
	rows, same, err := l.read(file)
	if err != nil {
		return nil, err
	}
	there, gone, err := l.find(file, rows)
	for _, row := range gone {
		fmt.Printf("gone\t\t%s\n", row)
	}
	switch {
	case err != nil:
		return nil, err
	case len(gone) > 0:
		return nil, fmt.Errorf("%s: the code of %d rows is gone; choose others with list %s", file, len(gone), l.name)
	case !same:
		return nil, errors.New(file + ": the rows are not those of its first line")
	}
	return there, nil
}

// write chooses rows in place of those whose code is gone: the next ones by the
// seed.
func (l *list) write(file string) error {
	old, _, err := l.read(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	there, gone, err := l.find(file, old)
	if err != nil {
		return err
	}
	var rows []string
	for _, s := range there {
		if s.bug != nil {
			rows = append(rows, s.row)
		}
	}
	for i, h := range l.hearts {
		mine := slices.DeleteFunc(slices.Clone(there), func(s site) bool { return s.heart != i })
		for _, s := range mine {
			rows = append(rows, s.row)
		}
		more, err := l.choose(i, rows)
		if err != nil {
			return err
		}
		for _, s := range more[:min(len(more), max(0, h.rows-len(mine)))] {
			fmt.Println("new\t\t" + s.row)
			rows = append(rows, s.row)
		}
	}
	for _, row := range gone {
		fmt.Println("gone\t\t" + row)
	}
	fmt.Println(l.header(rows))
	return os.WriteFile(file, []byte(l.header(rows)+"\n"+strings.Join(rows, "\n")+"\n"), 0o644)
}

// choose returns the sites of a heart that are not taken, in the order that the
// seed gives them.
func (l *list) choose(number int, taken []string) ([]site, error) {
	all, err := l.sites(number)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s site) bool {
		only := l.hearts[number].only
		return only != nil && !only(s) || slices.Contains(taken, s.row)
	})
	rank := func(s site) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(l.seed+s.row))) }
	slices.SortFunc(all, func(a, b site) int { return strings.Compare(rank(a), rank(b)) })
	return all, nil
}

// print prints the sites that contain a text.
func (l *list) print(only string) error {
	for i := range l.hearts {
		all, err := l.choose(i, nil)
		if err != nil {
			return err
		}
		for _, s := range all {
			if strings.Contains(s.row, only) {
				fmt.Println(s.row)
			}
		}
	}
	return nil
}
