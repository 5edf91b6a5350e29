package dotenv

import (
	"os"
	"sync"
)

// Environment looks up variables in the environment of the process, and in the .env files
// of the working directory. The author of these files may be somebody else. So they may set
// credentials and values for sandboxes, but neither the address that receives credentials
// nor where files are stored.
type Environment struct {
	files func() map[string]string
}

// NewEnvironment returns an environment that reads the files when they are first needed.
// It calls ignored for each file of another user.
func NewEnvironment(ignored func(error)) *Environment {
	return &Environment{files: sync.OnceValue(func() map[string]string {
		vars, foreign := Load(".", os.Getenv("NODE_ENV"))
		for _, err := range foreign {
			ignored(err)
		}
		return vars
	})}
}

// Lookup returns a variable of the process.
func (e *Environment) Lookup(key string) (string, bool) { return os.LookupEnv(key) }

// Getenv returns a variable of the process, or "" if it is not set.
func (e *Environment) Getenv(key string) string { return os.Getenv(key) }

// LookupAll returns a variable of the process or else of the files.
func (e *Environment) LookupAll(key string) (string, bool) {
	if v, ok := os.LookupEnv(key); ok {
		return v, true
	}
	v, ok := e.files()[key]
	return v, ok
}

// LookupFiles returns a variable of the files.
func (e *Environment) LookupFiles(key string) (string, bool) {
	v, ok := e.files()[key]
	return v, ok
}
