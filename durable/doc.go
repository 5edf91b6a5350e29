// Package durable uses sandboxes from Temporal workflows: a command that a
// workflow starts runs at most once, whatever crashes meanwhile, and what it
// wrote is there for as long as it is kept.
//
//	func Build(ctx workflow.Context, script string) (string, error) {
//		sb, err := durable.Open(ctx, &durable.Options{})
//		if err != nil {
//			return "", err
//		}
//		defer sb.Close(ctx) // also after a cancellation
//		res, err := sb.Run(ctx, "bash", []string{"-ec", script}, nil)
//		if err != nil {
//			return "", err
//		}
//		return res.Tail, res.Err()
//	}
//
// Workers register a [Worker], which has the client of the sandboxes and the
// store of their output. Functions and methods that take a workflow.Context are
// for workflow code; each is an activity or two, so that it survives a crash of
// the worker. A [Sandbox] and a [Command] are plain values: they can be kept in
// a workflow's state and carried over continue-as-new.
//
// # Guarantees
//
// A command is started at most once for each call of [Sandbox.Start]: its start
// carries a key, an attempt that follows a failed one looks for the command with
// that key first, and a guard in the sandbox lets one start win should an earlier
// request arrive late. A machine that ends while a command runs makes its outcome
// [Lost]: it is never run again, unless [RunOptions.RerunIfLost] says that it
// may be. Following a command and keeping its output is repeated after a crash
// from the start of its log, which has no effect on the command.
//
// The machine's timeout is a lease: Lease after the last use the platform stops
// it with a snapshot, even if everything here is gone. [Worker.Sweep] finds
// machines whose workflow has ended.
package durable
