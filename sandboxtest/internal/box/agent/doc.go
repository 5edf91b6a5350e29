// Package agent lets a separate process do the work of package namespaces, as root of a
// user namespace, for a host that is an ordinary user: a process with threads can't enter
// one. The process is this program, started again. The package implements both ends of
// their connection.
package agent
