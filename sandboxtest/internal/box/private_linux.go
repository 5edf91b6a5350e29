package box

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// privateNames are what boxes don't see of the homes of the machine's users:
// keys, logins and tokens, and what agents and browsers remember.
var privateNames = []string{
	".aws", ".azure", ".bash_history", ".cache/sandbox-sessions", ".cargo/credentials", ".cargo/credentials.toml", ".claude", ".claude.json", ".codex",
	".config/1Password", ".config/BraveSoftware", ".config/chromium", ".config/com.vercel.cli", ".config/gcloud", ".config/gh", ".config/git/credentials",
	".config/google-chrome", ".config/op", ".config/opencode", ".config/sandbox-cli", ".config/temporalio", ".cursor", ".docker/config.json", ".gem/credentials", ".gemini", ".git-credentials",
	".gnupg", ".kube", ".local/share/com.vercel.cli", ".local/share/keyrings", ".local/share/opencode", ".local/state/sandbox-cli/daemon", ".mozilla", ".netrc", ".npmrc",
	".password-store", ".pgpass", ".pi", ".pypirc", ".ssh", ".terraform.d", ".vault-token", ".vercel", ".yarnrc.yml", ".zsh_history",
}

// movable are the directories of a home that the environment can put elsewhere.
var movable = map[string]string{
	".cache/": "XDG_CACHE_HOME", ".config/": "XDG_CONFIG_HOME", ".local/share/": "XDG_DATA_HOME", ".local/state/": "XDG_STATE_HOME",
}

// privatePaths returns where privateNames are, or would be once somebody makes
// them, and the targets of those that are links.
func privatePaths() (paths []string) {
	homes := []string{"/root"}
	if home, err := os.UserHomeDir(); err == nil && home != "/" && filepath.IsAbs(home) {
		homes = append(homes, filepath.Clean(home))
	}
	users, _ := os.ReadDir("/home") // a machine may have none
	for _, user := range users {
		homes = append(homes, filepath.Join("/home", user.Name()))
	}
	add := func(home, name string) {
		if real, err := filepath.EvalSymlinks(home); err == nil {
			home = real
		}
		path := filepath.Join(home, name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			paths = append(paths, firstMissing(path))
			return
		} else if err != nil {
			return
		}
		paths = append(paths, path)
		if real, err := filepath.EvalSymlinks(path); err == nil && real != path && !isBelow(home, real) {
			paths = append(paths, real)
		}
	}
	for _, name := range privateNames {
		for _, home := range homes {
			add(home, name)
		}
		for place, variable := range movable {
			if rest, ok := strings.CutPrefix(name, place); ok && filepath.IsAbs(os.Getenv(variable)) {
				add(os.Getenv(variable), rest)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// firstMissing returns the first of a path's directories that does not exist, or
// the path itself: a login of tomorrow begins there.
func firstMissing(path string) string {
	parent := filepath.Dir(path)
	real, err := filepath.EvalSymlinks(parent)
	if errors.Is(err, fs.ErrNotExist) && parent != path {
		return firstMissing(parent)
	}
	if err == nil {
		parent = real
	}
	return filepath.Join(parent, filepath.Base(path))
}

// coverPrivate hides private files in the layer; boxes can write their own there.
func (b baseLayer) coverPrivate() error {
	var errs []error
	for _, path := range privatePaths() {
		errs = append(errs, b.cover(path))
	}
	return errors.Join(errs...)
}

// coverShown hides private files in the machine's directories that are bound into
// a box's root, where layers can't hide them.
func (n *namespaceBackend) coverShown(root string, shown []string) error {
	for _, path := range privatePaths() {
		if !slices.ContainsFunc(shown, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
			continue
		}
		target := filepath.Join(root, path)
		info, err := os.Lstat(target)
		if err != nil {
			continue // which the box's user can't read either
		}
		cover := "/dev/null"
		if info.IsDir() {
			cover = filepath.Join(n.mounts, nothingName)
		} else if !info.Mode().IsRegular() {
			continue // a link, whose place is covered itself
		}
		if err := bindReadOnly(cover, target); err != nil {
			return err
		}
	}
	return nil
}

// nothingName is an empty directory among the backend's mounts.
const nothingName = "nothing"
