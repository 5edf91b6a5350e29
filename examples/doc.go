// Package examples contains programs that use the SDK, one per directory. They
// run unchanged against Vercel, with credentials in the environment, and
// against the emulator:
//
//	go run ./cmd/sandbox-emulator go run ./examples/quickstart
//
// Tests build and run them against the emulator.
package examples
