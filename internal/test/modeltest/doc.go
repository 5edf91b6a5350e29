// Package modeltest runs random programs of calls against the emulator under random
// faults. It compares what the client reports with what the sandbox has recorded: each run
// of a command appends a line of its own to a journal in the sandbox, and each file has a
// history of the contents that it may have.
//
// A seed determines a program. A program that fails is shrunk to the steps that make it
// fail. README.md lists bugs with the seeds that find them.
package modeltest
