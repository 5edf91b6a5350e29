// Package engine starts commands, watches over them and gives them up. It knows
// the requests of a start ([Start]) and the life of a command after it ([Run]);
// package logstream reads the output. The three ways to run a command
// (RunCommand, StartCommand and Cmd) are thin layers over it.
package engine
