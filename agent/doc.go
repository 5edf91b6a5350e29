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
// A Toolset works on one sandbox ([New]), on that of a conversation
// ([ForConversation], with a [Conversations] for example), or on all of a project
// ([ForProject]). Adapters for the Model Context Protocol, Google's ADK and
// Anthropic's client are modules of their own: agent/mcptools, agent/adktools
// and agent/anthropictools.
//
// # Results and errors
//
// If the model can fix a problem, the call returns a failed [Result] and no error: a file
// does not exist, an argument is wrong, [Options.Before] refuses the call, a command takes
// too long, or the session ends during the call. Problems that only the program can fix are
// errors: the sandbox is gone, the credentials are refused, the quota or a budget is used
// up. The Result then tells the model so in this package's words. It contains the API's
// words only if the API refuses to create the sandbox that the model asked for.
//
// # Data
//
// Data from a sandbox may be hostile. A result has it between <sandbox-data> and
// </sandbox-data>, and the data can't close that tag. [Toolset.Instructions] tells the model
// that it is data. Control characters, terminal escapes and invisible characters are
// escaped, as \x1b or \u{202e}. A result is never longer than [Limits].Output, and the
// memory that a call needs does not depend on how much a sandbox sends.
package agent
