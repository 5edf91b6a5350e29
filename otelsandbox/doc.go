// Package otelsandbox reports the operations of a Vercel Sandbox client to OpenTelemetry, as spans
// and metrics:
//
//	observer, err := otelsandbox.New(nil) // uses the global providers
//	…
//	client, err := sandbox.NewClient(&sandbox.ClientOptions{Observer: observer})
//
// # Spans
//
// A command, resume, hook, stop, transfer and so on is an internal span named "sandbox command",
// "sandbox resume" and so on. Each HTTP request is a client span, named by its method and the
// template of its path according to the semantic conventions for HTTP. Its parent is the span of
// the operation that made it, for example the command's. A retry is a request with
// http.request.resend_count. The repair of a broken stream is a span "sandbox repair". Spans have
// no attribute url.full: the names and IDs in it are separate attributes, and its query contains
// the team.
//
// A call of a tool of package agent is a span "execute_tool bash" according to the conventions for
// generative AI, with gen_ai.operation.name and gen_ai.tool.name. A 404 for a GET is a result, not
// an error.
//
// A sampler sees the name and kind of a span, sandbox.operation and, for a request, the attributes
// of the conventions. It is not called for events within an event that it has dropped.
//
// # Metrics
//
//	http.client.request.duration    histogram, s   until the header of the response
//	sandbox.KIND.duration           histogram, s   of operation, command, wait, repair, resume, hook, stop, upload, download, tool, take, terminal, visit
//	sandbox.retries                 counter        requests that were sent because an earlier one failed
//	sandbox.commands.active         up-down counter
//	sandbox.command.output          counter, By
//	sandbox.transfer.io             counter, By    sandbox.direction is "upload" or "download"
//	sandbox.session.lived           counter, s     of sessions that this program has stopped
//	sandbox.session.cpu             counter, s     of sessions that this program has stopped
//	sandbox.rate_limit.remaining    gauge          as reported by the operation's last response
//
// Their attributes have few values: sandbox.operation, sandbox.outcome, sandbox.cause, and those of
// the conventions. Names and IDs are attributes of spans only, never of metrics. Secrets are never
// attributes. The arguments of commands are attributes only if [Options].Arguments is set.
package otelsandbox
