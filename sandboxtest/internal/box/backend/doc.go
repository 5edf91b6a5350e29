// Package backend is what all ways to run boxes share: what a way provides, which
// is [Backend] and [Machine], the description of boxes and commands, and the work
// on files, processes and threads that several of them need.
package backend
