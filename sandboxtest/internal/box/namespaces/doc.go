// Package namespaces gives boxes a root file system, processes and a network of
// their own, by the namespaces of Linux and overlayfs. It needs the rights of root, or
// those of root in a user namespace; see package agent. Its tests are those of
// package box, in namespace mode: network_linux_test.go, private_linux_test.go,
// isolation_linux_test.go, flatten_test.go and others.
package namespaces
