// Package promises tests what docs/reliability.md and docs/security.md promise, whatever
// happens to connections, responses and sessions, and that no field of an option or of a
// response is forgotten. The tests are one program because they share their scripted
// servers.
package promises
