// Package backend has what all modes share: the interfaces of a mode, which are [Backend]
// and [Machine], the descriptions of boxes and commands, and the work on files, processes
// and threads that several modes need.
package backend
