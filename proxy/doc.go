// Package proxy receives the requests that leave Vercel sandboxes.
//
// A sandbox's network policy may give a rule a forward URL: instead of going to
// the internet, a matching request is sent to that URL, with the original
// address in headers and a token that says which sandbox it comes from. The
// service behind the forward URL can look at the request, change it, answer it
// itself, or pass it on with credentials that the sandbox never sees.
//
// [Handler] checks the token, restores the original request and calls an
// ordinary [net/http.Handler] with it; [FromContext] tells that handler who is
// asking. [Forwarder] is such a handler, ready made: it passes requests on,
// streaming in both directions, puts credentials in by rule, and does not reach
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
// Anybody on the internet can send requests to a forward URL, and every
// customer of the platform can make it send validly signed ones. A request
// reaches the inner handler only when all of this holds:
//
//   - It has each forwarding header once, and together they make an http or
//     https URL without surprises: the host is a name or an address and nothing
//     more, the port is a number, the path starts with one slash and does not
//     climb.
//   - Its token is signed (RS256 and nothing else) by a key that the token's
//     issuer publishes. Issuers live at https://oidc.vercel.com and nowhere else.
//   - The token is in its time, with 60 seconds of tolerance. A token without
//     an expiry is refused.
//   - The token's audience is the forward URL.
//   - The token names the team, the project and the sandbox, and the lists in
//     [Options] let them in.
//
// Name your team's issuer in [Options.Issuers]. Whom a token is from is known only
// once its issuer's keys are there, and anybody can make up issuers. Fetches
// from unknown ones are therefore limited, and a service that has just started
// may refuse its own sandboxes while a stranger uses that limit up.
//
// Without [Options.Audience] the forward URL is taken from the request itself,
// that is from its Host header, scheme and path. This is right for one handler
// on one host that ends TLS itself. Set it whenever you can, and always when
// something in front of the service ends TLS or rewrites hosts or paths, or when
// one host serves several forward URLs: a sandbox chooses the path of its
// requests, and with it the place below its own forward URL where they arrive.
// Besides, whoever else receives requests from the same sandboxes at a forward
// URL of his own could send their tokens here, under his own host name.
//
// Without [Options.Teams] or [Options.Projects] a sandbox of any team may use
// the service.
//
// # Caches
//
// The answers behind [Handler] are for the sandbox that asked. Handler marks them
// as private, but a cache in front that is told to keep answers whatever their
// headers say would still hand them to others: the token and the host that was
// meant are in headers of the request, not in its URL. Configure none for
// a forward URL.
//
// The package proxytest makes keys, tokens and forwarded requests for tests.
package proxy
