//go:build !unix

package cli

import (
	"os"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// guardTerminal does nothing: a console resets its modes when the program ends.
func guardTerminal(*os.File) (release func()) { return func() {} }

func runGuard() int { return screen.ExitUsage }
