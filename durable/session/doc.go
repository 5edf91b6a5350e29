// Package session, which is experimental, runs sessions on Temporal: each is a
// sandbox with a queue of commands and a stream of events, which outlive the
// processes that use them, the machine, and the connections of those who watch.
//
// A [Client] starts sessions, sends them commands and reads their events, from any
// place in the stream on; its Handler serves them over HTTP. Workers have [Register]:
//
//	func startWorker(c client.Client, sandboxes *sandbox.Client, output durable.OutputStore) (worker.Worker, error) {
//		w := worker.New(c, "sandbox", worker.Options{})
//		session.Register(w, &durable.Worker{Client: sandboxes, Output: output})
//		return w, w.Start()
//	}
//
// Between commands a session's machine is stopped when it idles and moved to a new
// one before its time ends, as [Policy] says.
package session
