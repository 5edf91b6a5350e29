// Package namespaces gives sandboxes their own root file system, processes and network,
// with Linux namespaces and overlayfs. It needs the rights of root, or those of root in a
// user namespace; see package agent. The tests of package box test it in namespace mode:
// network_linux_test.go, private_linux_test.go, isolation_linux_test.go, flatten_test.go
// and others.
package namespaces
