// Package project tests the repository as a whole: what its packages import,
// what its documents say, and what the official client has that this one lacks.
package project
