// Package agent gives a language model tools that work in a sandbox. They run commands
// and Python, work with files, open ports, and create and restore snapshots.
//
//	tools := agent.New(sb, nil)
//	defer tools.Close()
//	for _, tool := range tools.Tools() {
//		// Name, Description and InputSchema go to the model.
//	}
//	result, err := tools.Call(ctx, "bash", json.RawMessage(`{"command": "make test"}`))
//
// [New] returns a Toolset for one sandbox, [ForConversation] one for the sandbox of a
// conversation, and [ForProject] one for all sandboxes of a project. [Conversations] keeps a
// sandbox for each conversation. Adapters for the Model Context Protocol, Google's ADK and
// Anthropic's client are modules of their own: agent/mcptools, agent/adktools
// and agent/anthropictools.
//
// # Results and errors
//
// If the model can fix a problem, the call returns a failed [Result] and no error. Examples
// are a missing file, a wrong argument, a call that [Options.Before] refuses, a command that
// takes too long, and a session that ends during the call.
//
// If only the program can fix a problem, the call also returns an error. Examples are a
// deleted sandbox, refused credentials, and a quota or budget that is used up. The Result
// tells the model about it in this package's words. It quotes the API only if the API refuses
// something that the model chose, such as the image of a new sandbox.
//
// # Data
//
// Data from a sandbox may be hostile. A result contains it between <sandbox-data> and
// </sandbox-data>, and the data can't close that tag. [Toolset.Instructions] tells the model
// not to follow instructions in it. Control characters, terminal escapes and invisible
// characters are escaped, as \x1b or \u{202e}. A result is never longer than [Limits].Output,
// and the memory that a call needs does not depend on how much a sandbox sends.
package agent
