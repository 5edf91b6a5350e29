// Package namespaces gives boxes a root file system, processes and a network of
// their own, by the namespaces of Linux and overlayfs. It needs the rights of root, or
// those of root in a user namespace; see package agent.
package namespaces
