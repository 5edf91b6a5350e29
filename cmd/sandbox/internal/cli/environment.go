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

func newEnvironment() *environment {
	return &environment{files: sync.OnceValue(func() map[string]string {
		return dotenv.Load(".", os.Getenv("NODE_ENV"))
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
