// Package agent runs package namespaces in a separate process, as root of a user
// namespace, for a host that is an ordinary user: a process with threads can't enter one.
// The process is this program, started again. The package contains both ends of the
// connection to it. If an ordinary user runs the tests of package box and package
// sandboxtest, they use an agent; agent_linux_test.go of package box kills it.
package agent
