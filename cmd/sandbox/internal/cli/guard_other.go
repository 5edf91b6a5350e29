//go:build !unix

package cli

import "os"

// guardTerminal does nothing: a console resets its modes when the program ends.
func guardTerminal(*os.File) (release func()) { return func() {} }

func runGuard() int { return exitUsage }
