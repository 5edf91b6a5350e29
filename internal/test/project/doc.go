// Package project tests the repository as a whole: the imports of its packages, the programs
// and links of its documents, and the table that compares it with the official client.
package project
