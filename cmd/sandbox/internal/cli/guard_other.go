//go:build !unix

package cli

import "os"

// guardTerminal does nothing: consoles forget their modes with the program.
func guardTerminal(*os.File) (release func()) { return func() {} }

func runGuard() int { return exitUsage }
