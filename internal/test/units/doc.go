// Package units tests the exported names of small internal packages in one program: linking
// a program for each takes longer than all of these tests. The names of its files start
// with the package that they test.
package units
