// Proxy shows credential brokering from end to end, on this machine and without
// an account: a sandbox calls an API with a token that it never has.
//
//	sandbox ── firewall ──> proxy.Handler ── proxy.Forwarder ──> API
//	Bearer PLACEHOLDER      who is it?      Bearer the-real-token
//
// It prints what the sandbox sees, and a line of the service's log for each
// request. The API refuses a guessed token. The forwarder refuses addresses that
// are not public, such as that of a cloud's metadata service.
//
//	go run ./examples/proxy # needs curl
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strings"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/proxy"
	"github.com/go-vercel/sandbox/proxy/proxytest"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// The API requires apiToken. The sandbox gets placeholder instead.
const (
	apiToken    = "the-real-token"
	placeholder = "PLACEHOLDER"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	// An API that requires a token. A real one is on the internet.
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+apiToken {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, "welcome")
	}))
	defer api.Close()

	// The platform signs the requests that it forwards. Here the authority does.
	authority, err := proxytest.NewAuthority()
	if err != nil {
		return err
	}

	// The service at the forward URL. A real program has the same one.
	forwarder, err := proxy.NewForwarder(&proxy.ForwarderOptions{
		Rules: []proxy.Rule{{
			Hosts:       []string{strings.TrimPrefix(api.URL, "http://")},
			Header:      "Authorization",
			Placeholder: placeholder,
			Secret:      proxy.StaticSecret(apiToken),
			AllowHTTP:   true, // this API has no certificate
		}},
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, // this API is on this machine
		Logger:       slog.New(slog.NewTextHandler(out, nil)),
	})
	if err != nil {
		return err
	}
	defer forwarder.CloseIdleConnections()
	service := httptest.NewServer(proxy.Handler(forwarder, &proxy.Options{
		Teams:      []string{proxytest.DefaultTeamID},
		HTTPClient: authority.Client(), // a real service omits this: keys come from oidc.vercel.com
	}))
	defer service.Close()

	// On the platform a rule of the sandbox's network policy has the forward URL,
	// and the firewall sends matching requests there. The emulator's firewall does
	// the same for HTTPS on Linux. To run on every machine, this example uses an
	// HTTP proxy, which the sandbox's programs find in their environment.
	firewall := httptest.NewServer((&proxytest.Firewall{
		Authority:  authority,
		ForwardURL: service.URL + "/hook",
	}).Proxy())
	defer firewall.Close()

	emulator, err := sandboxtest.NewServer(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, emulator.Close()) }()
	throughFirewall, err := url.Parse(firewall.URL)
	if err != nil {
		return err
	}
	if emulator.Mode() == sandboxtest.Namespace {
		throughFirewall.Host = "host.internal:" + throughFirewall.Port() // this machine, seen from the sandbox
	}
	sb, err := emulator.Client().Create(ctx, &sandbox.CreateOptions{Env: map[string]string{
		"http_proxy": throughFirewall.String(),
		"API_URL":    api.URL,
		"API_TOKEN":  placeholder,
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()

	for _, script := range []string{
		`echo "my token is $API_TOKEN"`,
		`curl -sS -H "Authorization: Bearer $API_TOKEN" $API_URL/v1/hello`,
		`curl -sS -H "Authorization: Bearer a-guess" $API_URL/v1/hello`,
		`curl -sS http://169.254.169.254/latest/meta-data/`,
	} {
		fmt.Fprintf(out, "\n$ %s\n", script)
		if _, err := sb.RunCommand(ctx, "sh", []string{"-c", script}, &sandbox.CommandOptions{Stdout: out, Stderr: out}); err != nil {
			return err
		}
	}
	return nil
}
