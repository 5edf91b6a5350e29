// Package otelsandbox tells OpenTelemetry what a client of Vercel Sandbox does,
// as spans and metrics:
//
//	observer, err := otelsandbox.New(nil) // by the global providers
//	…
//	client, err := sandbox.NewClient(&sandbox.ClientOptions{Observer: observer})
//
// # Spans
//
// A command, resume, hook, stop, transfer and so on is an internal span named
// "sandbox command", "sandbox resume" and so on. Each HTTP request is a client
// span named by its method and the template of its path, by the semantic
// conventions for HTTP, and a child of what it is part of: those of a command
// are children of the command's span. A retry is a request with
// http.request.resend_count, and a cut of a stream the span "sandbox repair". The
// attribute url.full is left out, since the names and IDs in it are attributes of
// their own and its query names the team.
//
// A call of a tool of package agent is a span by the conventions for generative AI,
// "execute_tool bash", with gen_ai.operation.name and gen_ai.tool.name. A 404 for a GET
// is an answer, and no error of its span.
//
// A sampler sees the name and kind of a span, sandbox.operation and, of a request,
// the attributes of the conventions. It is not asked about what is part of an
// event that it has dropped.
//
// # Metrics
//
//	http.client.request.duration    histogram, s   until the header of the response
//	http.client.request.body.size   histogram, By  with [Options].BodySizes
//	http.client.response.body.size  histogram, By  with [Options].BodySizes
//	sandbox.KIND.duration           histogram, s   of operation, command, wait, repair, resume, hook, stop, upload, download, pace, extension,
//	                                               tool, take, terminal, visit
//	sandbox.retries                 counter        requests that were sent since an earlier one has failed
//	sandbox.commands.active         up-down counter
//	sandbox.command.output          counter, By
//	sandbox.transfer.io             counter, By    sandbox.direction is "upload" or "download"
//	sandbox.session.lived           counter, s     of sessions that this program has stopped
//	sandbox.session.cpu             counter, s     of sessions that this program has stopped
//	sandbox.session.extended        counter, s     by KeepAlive
//	sandbox.rate_limit.remaining    gauge          as the last response of the operation has told
//
// Their attributes are few words each: sandbox.operation, sandbox.outcome,
// sandbox.cause, and those of the conventions. Names and IDs are attributes of
// spans, and never of metrics. Secrets are attributes of nothing, and nor are the
// arguments of commands unless [Options].Arguments is set.
package otelsandbox
