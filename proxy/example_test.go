package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/go-vercel/sandbox/proxy"
	"github.com/go-vercel/sandbox/proxy/proxytest"
)

func ExampleHandler() {
	// The authority and the firewall stand in for the platform.
	authority, err := proxytest.NewAuthority()
	if err != nil {
		panic(err)
	}
	handler := proxy.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		meta, _ := proxy.FromContext(r.Context())
		fmt.Fprintf(w, "%s may not %s %s", meta.SandboxName, r.Method, r.URL)
	}), &proxy.Options{
		Teams:      []string{proxytest.DefaultTeamID},
		HTTPClient: authority.Client(),
	})
	service := httptest.NewServer(handler)
	defer service.Close()

	sandbox := &http.Client{Transport: &proxytest.Firewall{Authority: authority, ForwardURL: service.URL + "/hook"}}
	resp, err := sandbox.Get("https://api.example.com/v1/things?all")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(string(body))

	// Requests without a token are refused.
	resp, err = http.Get(service.URL + "/hook")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output:
	// sandbox-test may not GET https://api.example.com/v1/things?all
	// 403 Forbidden
}

func ExampleErrorFromContext() {
	invalid := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(proxy.ErrorFromContext(r.Context()))
		w.WriteHeader(http.StatusUnauthorized)
	})
	handler := proxy.Handler(nil, &proxy.Options{Invalid: invalid})
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/hook", nil))
	// Output:
	// proxy: missing forwarding headers: Vercel-Forwarded-Host, which a network policy with a forward URL adds
}
