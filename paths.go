package sandbox

import (
	"path"
	"strings"
)

// defaultCwd is where relative paths start when the API does not say.
const defaultCwd = "/vercel/sandbox"

// absolutePath resolves name in cwd and cleans it.
func absolutePath(cwd, name string) (string, error) {
	if cwd == "" {
		cwd = defaultCwd
	}
	if !path.IsAbs(cwd) {
		return "", invalid("Cwd", "the working directory %q is not an absolute path", cwd)
	}
	if strings.IndexByte(cwd, 0) >= 0 || strings.IndexByte(name, 0) >= 0 {
		return "", invalid("Path", "%q in %q contains a NUL byte", name, cwd)
	}
	if path.IsAbs(name) {
		return path.Clean(name), nil
	}
	return path.Join(cwd, name), nil
}

// filePath is absolutePath for what becomes a file. It refuses paths that are
// known to name a directory, because a file in an archive would replace it.
func filePath(cwd, name string) (string, error) {
	if name == "" {
		return "", invalid("Path", "is empty")
	}
	abs, err := absolutePath(cwd, name)
	if err != nil {
		return "", err
	}
	if cwd == "" {
		cwd = defaultCwd
	}
	if isWithin(path.Clean(cwd), abs) {
		return "", invalid("Path", "%q is a directory (%s), which a file would replace", name, abs)
	}
	return abs, nil
}

// isWithin reports whether the absolute clean path p is dir or below it.
func isWithin(p, dir string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// entryName is the name in an archive that is unpacked at /.
func entryName(abs string) string { return strings.TrimPrefix(abs, "/") }
