// Package sudo lets this program act as sudo in boxes whose host has none: the program is
// bound into each box, and acts as sudo when it is started there.
package sudo
