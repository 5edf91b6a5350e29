// Package modeltest drives random programs against the emulator under random
// faults, and judges what the client says by what the sandbox itself has
// recorded: each run of a command appends a line of its own to a journal there,
// and each file has a history of what it may hold.
//
// A program follows from its seed. One that fails is shrunk to the steps that it
// takes. The README has which seeds find which mistakes.
package modeltest
