// Package reliability tests what docs/reliability.md promises: commands run at
// most once, no output is lost, and every call returns, whatever happens to
// connections, responses and sessions.
package reliability
