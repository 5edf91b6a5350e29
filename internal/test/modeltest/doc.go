// Package modeltest runs programs of random calls against the emulator, under random faults.
// It compares the results of the client with records of the sandbox: each run of a command
// appends a unique line to a journal in the sandbox, and each file has a history of the
// contents that it may have.
//
// A seed determines a program. If a program fails, the test shrinks it to the steps that are
// needed for the failure. README.md describes the steps, the faults and the checks.
package modeltest
