// Package agent gives a language model the tools of a sandbox: it runs commands
// and Python, works with files, serves ports and goes back to snapshots.
//
//	tools := agent.New(sb, nil)
//	defer tools.Close()
//	for _, tool := range tools.Tools() {
//		// Name, Description and InputSchema go to the model.
//	}
//	result, err := tools.Call(ctx, "bash", json.RawMessage(`{"command": "make test"}`))
//
// A Toolset works on one sandbox ([New]), on that of a conversation
// ([ForConversation], with a [Conversations] for example), or on all of a project
// ([ForProject]). Adapters for the Model Context Protocol, Google's ADK and
// Anthropic's client are modules of their own: agent/mcptools, agent/adktools
// and agent/anthropictools.
//
// # Results and errors
//
// What the model can mend is a failed [Result] and no error: a file that does not
// exist, an argument that is wrong, a refusal of [Options.Before], a command that
// takes too long, a session that ends under the call. An error is for the program: a
// sandbox that is gone, refused credentials, an exhausted quota, a budget that is
// used up. The Result then says so to the model, in words of this package. (Why the
// API refuses a sandbox that the model wants created is in the API's words.)
//
// # Data
//
// Whatever comes out of a sandbox may be hostile. It stands between
// <sandbox-data> and </sandbox-data> in a result, which it can't leave, and
// [Toolset.Instructions] tells the model that it is data. Control characters,
// terminal escapes and characters that do not show are spelled out, as \x1b or
// \u{202e}. A result is never longer than [Limits].Output, and memory does not
// grow with what a sandbox sends.
package agent
