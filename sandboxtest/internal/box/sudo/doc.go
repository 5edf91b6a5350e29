// Package sudo makes this program the sudo of sandboxes whose host has none: it is bound
// into each sandbox, and acts as sudo when it is started there. sudo_linux_test.go in
// package box tests it.
package sudo
