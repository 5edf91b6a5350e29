// Package limits tests how much the client needs: memory, connections and
// goroutines, with large output and files and with many sandboxes.
package limits
