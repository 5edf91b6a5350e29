// Package agent has a process of its own do the work of package namespaces, as root
// of a user namespace, for a host that is an ordinary user: a process with threads
// can't enter one. The process is this program, started again, and the package has
// both ends of the connection to it. Tests of package box and package sandboxtest that an
// ordinary user runs go through it; agent_linux_test.go there kills it.
package agent
