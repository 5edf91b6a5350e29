// Package dotenv reads .env files by the rules of the npm packages dotenv and
// dotenv-flow, which the official CLI uses.
package dotenv

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// maxSize limits the size of a file, because its author may be somebody else.
const maxSize = 1 << 20

var line = regexp.MustCompile(`(?m)^\s*(?:export\s+)?([\w.-]+)(?:\s*=\s*?|:\s+?)(\s*'(?:\\'|[^'])*'|\s*"(?:\\"|[^"])*"|\s*` + "`(?:\\\\`|[^`])*`" + `|[^#\r\n]+)?[^\S\n]*(?:#.*)?$`)

// Parse reads the content of a file.
func Parse(text string) map[string]string {
	vars := map[string]string{}
	text = strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n"), "\r", "\n")
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		value := strings.TrimSpace(m[2])
		if n := len(value); n >= 2 && strings.ContainsRune("'\"`", rune(value[0])) && value[0] == value[n-1] {
			double := value[0] == '"'
			value = value[1 : n-1]
			if double {
				value = strings.NewReplacer(`\n`, "\n", `\r`, "\r").Replace(value)
			}
		}
		vars[m[1]] = value
	}
	return vars
}

// Load reads the files of a directory: .env, .env.local, and those of the environment,
// such as .env.production and .env.production.local. Later files take precedence. Load
// skips files that are missing or not regular, and those of another user, which foreign
// describes.
func Load(dir, environment string) (vars map[string]string, foreign []error) {
	names := []string{".env"}
	if environment != "test" {
		names = append(names, ".env.local")
	}
	if environment != "" && filepath.Base(environment) == environment {
		names = append(names, ".env."+environment, ".env."+environment+".local")
	}
	vars = map[string]string{}
	for _, name := range names {
		text, err := oidc.ReadOwn(filepath.Join(dir, name), dir)
		switch {
		case err == nil:
			maps.Copy(vars, Parse(string(text)))
		case errors.Is(err, oidc.ErrForeign):
			foreign = append(foreign, err)
		}
	}
	return vars, foreign
}

func read(name string) (string, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular() || info.Size() > maxSize:
		return "", &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file of at most 1 MiB")}
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

// LoadFile reads a file that the user has named.
func LoadFile(name string) (map[string]string, error) {
	text, err := read(name)
	if err != nil {
		return nil, err
	}
	return Parse(text), nil
}
