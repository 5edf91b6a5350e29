// Package units tests small internal packages through what they export, in one
// program: linking a program for each takes longer than all of these tests. The names of
// its files begin with the package that they test.
package units
