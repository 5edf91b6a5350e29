// Package promises tests what docs/reliability.md and docs/security.md promise, whatever
// happens to connections, responses and sessions, and that the public types show every
// field of a response. The tests are one program because they share their scripted servers.
package promises
