// Package namespaces gives boxes their own root file system, processes and network, with
// Linux namespaces and overlayfs. It needs the rights of root, possibly in a user
// namespace; see package agent.
package namespaces
