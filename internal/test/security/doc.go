// Package security tests what docs/security.md promises: secrets are not
// printed, and nothing from the network, a sandbox or a folder is trusted.
package security
