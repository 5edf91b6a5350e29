// Package proxy receives the requests that leave Vercel sandboxes.
//
// A rule of a sandbox's network policy may have a forward URL: instead of going
// to the internet, a matching request is sent to that URL, with the original
// address in headers and a token that identifies the sandbox. The service at
// the forward URL can inspect the request, change it, respond to it itself, or
// forward it with credentials that the sandbox never sees.
//
// [Handler] verifies the token, restores the original request and calls an
// ordinary [net/http.Handler] with it; [FromContext] tells that handler which
// sandbox has sent the request. [Forwarder] is such a handler: it forwards requests,
// streams in both directions, inserts credentials by rules, and refuses connections to
// private networks.
//
//	forwarder, err := proxy.NewForwarder(&proxy.ForwarderOptions{
//		Rules: []proxy.Rule{{
//			Hosts:       []string{"api.example.com"},
//			Header:      "Authorization",
//			Placeholder: "EXAMPLE_TOKEN",
//			Secret:      proxy.StaticSecret(os.Getenv("EXAMPLE_TOKEN")),
//		}},
//	})
//	if err != nil {
//		return err
//	}
//	http.Handle("/hook/", proxy.Handler(forwarder, &proxy.Options{
//		Audience: []string{"https://proxy.example.com/hook"},
//		Issuers:  []string{"https://oidc.vercel.com/my-team"},
//		Teams:    []string{"team_123"},
//		Logger:   slog.Default(),
//	}))
//
// # What makes a request valid
//
// Anybody on the internet can send requests to a forward URL, and every customer
// of the platform can make the platform send validly signed ones. A request
// reaches the inner handler only if all of the following is true:
//
//   - It has each forwarding header once, and together they form a valid http or https
//     URL: the host is a name or an address, the port is a number, and the path starts
//     with one slash and has no dot segments.
//   - Its token is signed (with RS256 and nothing else) by a key that the token's
//     issuer publishes. Issuers are at https://oidc.vercel.com and nowhere else.
//   - The token is valid now, with a tolerance of 60 seconds. A token without an
//     expiry is refused.
//   - The token's audience is the forward URL.
//   - The token names the team, the project and the sandbox, and the lists in
//     [Options] allow them.
//
// Set [Options.Issuers] to your team's issuer. The handler can verify a token only
// after it has fetched the issuer's keys, and anybody can invent issuers. It
// therefore limits the rate of fetches from unknown issuers. While a stranger
// exhausts that limit, a service that has just started may refuse its own
// sandboxes.
//
// Without [Options.Audience] the forward URL is derived from the request
// itself, that is from its Host header, scheme and path. This is correct for
// one handler on one host that terminates TLS itself. Set Audience whenever you
// can, and always in these cases:
//
//   - Something in front of the service terminates TLS or rewrites hosts or paths.
//   - One host serves several forward URLs. A sandbox chooses the path of its
//     requests, so they may arrive at another forward URL below its own.
//   - The same sandboxes send requests to a forward URL of somebody else, who could
//     send their tokens here, with the host name of that URL.
//
// Without [Options.Teams] or [Options.Projects], sandboxes of any team may use
// the service.
//
// # Caches
//
// The responses of [Handler] are for the sandbox that asked. Handler marks
// them as private, but a cache in front that is configured to store responses
// whatever their headers say would still give them to others: the token and the
// intended host are in headers of the request, not in its URL. Configure no
// cache for a forward URL.
//
// Package proxytest makes keys, tokens and forwarded requests for tests.
package proxy
