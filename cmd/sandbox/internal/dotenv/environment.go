package dotenv

import (
	"os"
	"sync"
)

// Environment is the environment of the process, and the .env files of the
// working directory after it. The files come from whatever folder the program
// is run in: they may give credentials and values for sandboxes, but not the
// address that credentials are sent to, nor where files are kept.
type Environment struct {
	files func() map[string]string
}

// NewEnvironment reads the files when they are first needed. It calls ignored for
// each file that belongs to another user.
func NewEnvironment(ignored func(error)) *Environment {
	return &Environment{files: sync.OnceValue(func() map[string]string {
		vars, foreign := Load(".", os.Getenv("NODE_ENV"))
		for _, err := range foreign {
			ignored(err)
		}
		return vars
	})}
}

// Lookup looks at the process only.
func (e *Environment) Lookup(key string) (string, bool) { return os.LookupEnv(key) }

// Getenv is Lookup without saying whether the variable is set.
func (e *Environment) Getenv(key string) string { return os.Getenv(key) }

// LookupAll looks at the process and then at the files.
func (e *Environment) LookupAll(key string) (string, bool) {
	if v, ok := os.LookupEnv(key); ok {
		return v, true
	}
	v, ok := e.files()[key]
	return v, ok
}

// LookupFiles looks at the files only.
func (e *Environment) LookupFiles(key string) (string, bool) {
	v, ok := e.files()[key]
	return v, ok
}
