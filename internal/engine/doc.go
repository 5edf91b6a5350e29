// Package engine starts and supervises commands. [Start] makes the requests of a start, and
// [Run] supervises a command after it. Package logstream reads the output. The three ways to
// run a command (RunCommand, StartCommand and Cmd) are thin layers over this package.
package engine
