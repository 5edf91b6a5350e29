// Package platform tests how the hosted service behaves: recorded or documented
// exchanges are replayed, and the same questions are put to the service or the
// emulator.
package platform
