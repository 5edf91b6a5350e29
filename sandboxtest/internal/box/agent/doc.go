// Package agent has a process of its own do the work of package namespaces, as root
// of a user namespace, for a host that is an ordinary user: a process with threads
// can't enter one. The process is this program, started again, and the package has
// both ends of the connection to it.
package agent
