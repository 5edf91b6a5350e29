// Package limits tests the client's use of memory, connections and goroutines with large
// output, large files and many sandboxes.
package limits
