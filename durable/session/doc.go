// Package session, which is experimental, runs sessions on Temporal: each is a
// sandbox with a queue of commands and a stream of events, which outlive the
// processes that use them, the machine, and the connections of those who watch.
//
// A [Client] starts sessions, sends them commands and reads their events, from any
// place in the stream on; its Handler serves them over HTTP. Workers have [Register].
// Between commands a session's machine is stopped when it idles and moved to a new
// one before its time ends, as [Policy] says.
package session
