// Package durable uses sandboxes from Temporal workflows. A command that a workflow starts
// runs at most once, whatever crashes, and its output is stored.
//
// Workers register a [Worker], which has the client of the sandboxes and the store of
// their output. Functions and methods that take a workflow.Context are for workflow code.
// Each executes one or two activities, and so survives a crash of the worker. A [Sandbox]
// and a [Command] are plain values: a workflow can keep them in its state and carry them
// over continue-as-new.
//
// # Guarantees
//
// Each call of [Sandbox.Start] starts its command at most once. The start has a key, and
// each further attempt first looks for the command with that key. If an earlier request
// arrives late, a guard in the sandbox lets only one start win. If a machine ends while a
// command runs, its outcome is [Lost], and it never runs again. After a crash, following a command
// begins again at the start of its log, which does not affect the command.
//
// The machine's timeout is a lease. The platform stops the machine, with a snapshot, when
// it has not been used for that long, even if all your processes are gone. [Worker.Sweep]
// finds machines whose workflow has ended.
package durable
