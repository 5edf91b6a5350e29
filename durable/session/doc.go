// Package session, which is experimental, runs sessions on Temporal. A session is a sandbox
// with a queue of commands and a stream of events. It outlives your processes, its machine
// and the connections of its viewers.
//
// A [Client] starts sessions, sends them commands and reads their events from any position.
// Its Handler serves them over HTTP. Workers call [Register]:
//
//	func startWorker(c client.Client, sandboxes *sandbox.Client, output durable.OutputStore) (worker.Worker, error) {
//		w := worker.New(c, "sandbox", worker.Options{})
//		session.Register(w, &durable.Worker{Client: sandboxes, Output: output})
//		return w, w.Start()
//	}
//
// Between commands, a session stops its machine when idle, and moves to a new machine before
// its time ends. [Policy] configures that.
package session
