// Package platform has tests of what the hosted service does: as it was
// observed, played back, and asked again of the service or the emulator.
package platform
