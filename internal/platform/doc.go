// Package platform asks a service what docs/maintainers/platform.md says of it.
// Its tests put the questions to the emulator, and replay exchanges with the
// hosted service that were recorded or documented.
package platform
