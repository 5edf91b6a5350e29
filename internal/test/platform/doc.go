// Platform checks what docs/maintainers/platform.md says about the service, with the
// credentials of the environment:
//
//	go run ./internal/test/platform
//
// Its tests put the questions to the emulator, and replay exchanges with the
// hosted service that were recorded or documented.
package main
