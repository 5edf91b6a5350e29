// Package units tests the exported names of small internal packages. It has their tests in
// one program, because linking a program for each package takes longer than all of these
// tests. The name of each file begins with the package that it tests.
package units
