package conformance

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/proxy"
)

// proxyTexts are JavaScript's reasons for the errors of package proxy. Its
// other reasons are texts of a library and are not compared.
var proxyTexts = []struct {
	err  error
	text string
}{
	{proxy.ErrMissingHeaders, "Missing required proxy headers"},
	{proxy.ErrInvalidURL, "Invalid proxied request URL"},
	{proxy.ErrMissingIssuer, "Missing OIDC issuer"},
	{proxy.ErrInvalidIssuer, "Invalid OIDC issuer"},
	{proxy.ErrMissingClaims, "Missing required claims in OIDC token"},
}

func opProxy(c *call) (any, error) {
	var a struct {
		Request struct {
			URL     string            `json:"url"`
			Method  string            `json:"method"`
			Headers map[string]string `json:"headers"`
			Body    *string           `json:"body"`
		} `json:"request"`
		Respond struct {
			Status *int    `json:"status"`
			Body   *string `json:"body"`
		} `json:"respond"`
		CustomInvalid bool `json:"customInvalid"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	var body io.Reader
	if a.Request.Body != nil {
		body = strings.NewReader(*a.Request.Body)
	}
	r := httptest.NewRequest(cmp.Or(a.Request.Method, http.MethodGet), a.Request.URL, body)
	if a.Request.Body != nil {
		// A JavaScript Request sets this for a string body.
		r.Header.Set("Content-Type", "text/plain;charset=UTF-8")
	}
	for k, v := range a.Request.Headers {
		r.Header.Set(k, v)
	}

	value := map[string]any{}
	opts := &proxy.Options{HTTPClient: c.d.http, Keys: c.d.proxyKeys()}
	if a.CustomInvalid {
		opts.Invalid = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := proxy.ErrorFromContext(r.Context())
			seen := seenRequest(r, !errors.Is(err, proxy.ErrMissingHeaders) && !errors.Is(err, proxy.ErrInvalidURL))
			seen["error"] = "…"
			for _, t := range proxyTexts {
				if errors.Is(err, t.err) {
					seen["error"] = t.text
				}
			}
			value["invalid"] = seen
			w.WriteHeader(499)
			_, _ = io.WriteString(w, "custom")
		})
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := seenRequest(r, true)
		if m, ok := proxy.FromContext(r.Context()); ok {
			seen["meta"] = map[string]any{
				"host": m.Host, "teamId": m.TeamID, "projectId": m.ProjectID, "sandboxId": m.SandboxID, "sandboxName": m.SandboxName,
			}
		}
		value["handler"] = seen
		status, text := http.StatusOK, "ok"
		if a.Respond.Status != nil {
			status = *a.Respond.Status
		}
		if a.Respond.Body != nil {
			text = *a.Respond.Body
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
	w := httptest.NewRecorder()
	proxy.Handler(next, opts).ServeHTTP(w, r.WithContext(c.ctx))
	value["status"], value["body"] = float64(w.Code), normText(w.Body.String())
	return value, nil
}

// seenRequest describes a request that a handler received. In JavaScript the
// original host is in a header, while the host that received the request is
// not.
func seenRequest(r *http.Request, original bool) map[string]any {
	body, _ := io.ReadAll(r.Body)
	headers := []any{}
	for k, values := range r.Header {
		headers = append(headers, []any{strings.ToLower(k), strings.Join(values, ", ")})
	}
	if original {
		headers = append(headers, []any{"host", r.Host})
	}
	slices.SortFunc(headers, func(a, b any) int {
		return strings.Compare(a.([]any)[0].(string), b.([]any)[0].(string))
	})
	return map[string]any{"url": r.URL.String(), "method": r.Method, "headers": headers, "body": normText(string(body))}
}
