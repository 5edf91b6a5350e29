// Package security has tests of what docs/security.md promises: secrets do not
// print, and nothing from the network, a sandbox or a folder is trusted.
package security
