// Package backend is what all ways to run boxes share: what a way provides, which
// is [Backend] and [Machine], the description of boxes and commands, and the work
// on files, processes and threads that several of them need. Its tests are those of
// package box, in each mode; here are only those of copies, archives and threads.
package backend
