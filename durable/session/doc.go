// Package session, which is experimental, runs sessions on Temporal. A session is a sandbox
// with a queue of commands and a stream of events. It outlives your processes, its machine
// and the connections of its viewers.
//
// Workers that called [Register] run sessions. A [Client] starts them, sends them commands and
// reads their events from any position; its Handler serves them over HTTP:
//
//	func hello(ctx context.Context, c client.Client, sandboxes *sandbox.Client) error {
//		output := durable.Dir("output")
//		w := worker.New(c, "sandbox", worker.Options{})
//		session.Register(w, &durable.Worker{Client: sandboxes, Output: output})
//		if err := w.Start(); err != nil {
//			return err
//		}
//		defer w.Stop()
//
//		sessions := session.New(c, &session.Options{Sandbox: sandboxes, Output: output})
//		id, err := sessions.Start(ctx, nil)
//		if err != nil {
//			return err
//		}
//		if _, err := sessions.Command(ctx, id, session.Command{Command: "echo Hello", Key: "hello"}); err != nil {
//			return err
//		}
//		for event, err := range sessions.Events(ctx, id, session.Cursor{}) {
//			if err != nil {
//				return err
//			}
//			switch event.Type {
//			case session.TypeCommandOutput:
//				fmt.Print(event.Data)
//			case session.TypeCommandEnd:
//				if err := sessions.Destroy(ctx, id, &session.DestroyOptions{DeleteSandbox: true}); err != nil {
//					return err
//				}
//			}
//		}
//		return nil
//	}
//
// Between commands, a session stops its machine when idle, and moves to a new machine before
// its time ends. [Policy] configures that.
package session
