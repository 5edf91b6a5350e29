// Package session, which is experimental, runs sessions on Temporal. A session is a sandbox
// with a queue of commands and a stream of events. It outlives your processes, its machine
// and the connections of its viewers.
//
// Workers that called [Register] run sessions. A [Client] starts them, sends them commands and
// reads their events from any position; its Handler serves them over HTTP.
//
// Between commands, a session stops its machine when idle, and moves to a new machine before
// its time ends. [Policy] configures that.
package session
