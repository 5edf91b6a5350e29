// Package promises tests the promises of docs/reliability.md and docs/security.md while
// connections, responses and sessions fail. It also tests that the public types show every
// field of a response. The tests are one package because they share their scripted servers.
package promises
