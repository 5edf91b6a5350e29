// Package limits has tests of how much the client needs: memory, connections
// and goroutines, while output and files are large and sandboxes many.
package limits
