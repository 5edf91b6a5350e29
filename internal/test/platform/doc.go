// Platform checks whether the service behaves as docs/maintainers/platform.md says. It uses
// the credentials of the environment:
//
//	go run ./internal/test/platform
//
// Its tests ask the emulator the same questions, and replay recorded or documented exchanges
// with the hosted service.
package main
