package box

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// An image may hold one program and nothing else. Boxes get what else they need
// from the machine: the kit, a directory of programs with their libraries, which
// every box of an image sees.

// kitDir is the kit's place in a box.
const kitDir = ownRun + "/kit"

// kit is that directory, on the backend's mounts.
type kit struct {
	dir string
	// loader says that kitDir's own loader starts programs, with its libraries.
	loader map[string]bool
}

// command is how a box starts a program of the kit.
func (k *kit) command(name string) []string {
	program := kitDir + "/" + name
	if k.loader[name] {
		return []string{kitDir + "/ld", "--library-path", kitDir + "/lib", program}
	}
	return []string{program}
}

// openKit assembles the kit. It runs on one of the backend's threads.
func (n *namespaceBackend) openKit() (*kit, error) {
	if n.kit != nil {
		return n.kit, nil
	}
	k := &kit{dir: n.mounts + "/kit", loader: make(map[string]bool)}
	if err := os.MkdirAll(k.dir+"/lib", 0o755); err != nil {
		return nil, err
	}
	self, err := os.Readlink("/proc/self/exe")
	if err == nil {
		err = k.add("sudo", self)
	}
	if err != nil {
		n.log.Info("sandboxes with an image have only its own sudo", "error", err)
	}
	if n.rootless {
		unshare, err := exec.LookPath("unshare")
		if err == nil {
			err = k.add("unshare", unshare)
		}
		if err != nil {
			return nil, err
		}
	}
	n.kit = k
	return k, nil
}

// add adds a program of the machine, and the libraries that it needs.
func (k *kit) add(name, program string) error {
	loader, err := loaderOf(program)
	if err != nil {
		return err
	}
	if loader != "" {
		// It knows where it finds what.
		out, err := exec.Command(loader, "--list", program).Output()
		if err != nil {
			return fmt.Errorf("list the libraries of %s: %w", program, err)
		}
		for line := range strings.Lines(string(out)) {
			library, found, ok := strings.Cut(strings.TrimSpace(line), " => ")
			if !ok {
				continue // of the kernel, or the loader itself
			}
			found, _, _ = strings.Cut(found, " (")
			if err := copyProgram(found, k.dir+"/lib/"+filepath.Base(library)); err != nil {
				return fmt.Errorf("bring %s for %s: %w", library, program, err)
			}
		}
		if err := copyProgram(loader, k.dir+"/ld"); err != nil {
			return err
		}
		k.loader[name] = true
	}
	// Bound and not copied: this one may be large.
	target := k.dir + "/" + name
	if err := writeFile(target, "", 0o755); err != nil {
		return err
	}
	return (mountPoint{source: program, target: target, flags: unix.MS_BIND}).mount()
}

func copyProgram(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := copyFile(from, to, info); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// loaderOf gives the program that loads a program with its libraries, or "" for
// one that has none.
func loaderOf(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, min(p.Filesz, maxPath))
		if _, err := p.ReadAt(name, 0); err != nil {
			return "", err
		}
		return string(bytes.TrimRight(name, "\x00")), nil
	}
	return "", nil
}

// showKit binds the kit into a box, unless the box has removed its place.
func (n *namespaceBackend) showKit(root string) error {
	target := root + kitDir
	if info, err := os.Lstat(target); err != nil || !info.IsDir() {
		return nil
	}
	if err := bindReadOnly(n.kit.dir, target); err != nil {
		return fmt.Errorf("show the kit: %w", err)
	}
	return nil
}
