package cli

import (
	"os"
	"sync"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/dotenv"
)

// environment is the environment of the process, and the .env files of the
// working directory after it. The files come from whatever folder the program
// is run in: they may give credentials and values for sandboxes, but not the
// address that credentials are sent to, nor where files are kept.
type environment struct {
	files func() map[string]string
}

// newEnvironment reads the files when they are first needed. It calls ignored for
// each file that belongs to another user.
func newEnvironment(ignored func(error)) *environment {
	return &environment{files: sync.OnceValue(func() map[string]string {
		vars, foreign := dotenv.Load(".", os.Getenv("NODE_ENV"))
		for _, err := range foreign {
			ignored(err)
		}
		return vars
	})}
}

// lookup looks at the process only.
func (e *environment) lookup(key string) (string, bool) { return os.LookupEnv(key) }

// lookupAll looks at the process and then at the files.
func (e *environment) lookupAll(key string) (string, bool) {
	if v, ok := os.LookupEnv(key); ok {
		return v, true
	}
	v, ok := e.files()[key]
	return v, ok
}

// lookupFiles looks at the files only.
func (e *environment) lookupFiles(key string) (string, bool) {
	v, ok := e.files()[key]
	return v, ok
}
