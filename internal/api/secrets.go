package api

import (
	"encoding/json"

	"github.com/go-vercel/sandbox/internal/redact"
)

// redactFailure redacts the secrets in a failure before it leaves the package.
func (c *Client) redactFailure(f *Failure, req *Request) *Failure {
	known := c.Known(req)
	f.Code, f.Message, f.Err = known.Text(f.Code), known.Text(f.Message), known.Error(f.Err)
	f.Header = known.Header(f.Header)
	if body := string(f.Body); known.Text(body) != body {
		f.Body = []byte(known.Text(body))
	}
	return f
}

// Known returns the secrets to redact in texts about a request, which may be nil: the tokens
// that were sent, and the secrets in the request. If the body has a method Secrets, it
// returns the part that may contain secrets.
func (c *Client) Known(req *Request) *redact.Known {
	if req == nil || req.Body == nil && req.Extra == nil {
		return c.cfg.Secrets
	}
	body := req.Body
	if b, ok := body.(interface{ Secrets() any }); ok {
		body = b.Secrets()
	}
	data, err := json.Marshal([]any{body, req.Extra})
	var sent [2]any
	if err != nil || json.Unmarshal(data, &sent) != nil {
		return c.cfg.Secrets // nothing was sent
	}
	return c.cfg.Secrets.With(appendSecrets(appendSecrets(nil, sent[0], false), sent[1], true)...)
}

// appendSecrets appends the secrets in a JSON value of a request: values of variables and
// headers, user names and passwords, credentials in URLs, or all strings.
func appendSecrets(list []string, v any, all bool) []string {
	switch v := v.(type) {
	case string:
		if all {
			list = append(list, v)
		}
	case []any:
		for _, x := range v {
			list = appendSecrets(list, x, all)
		}
	case map[string]any:
		for name, x := range v {
			text, _ := x.(string)
			_, table := x.(map[string]any) // in a list, headers are matchers without secrets
			switch name {
			case "url", "forwardURL":
				list = append(appendSecrets(list, x, all), redact.URLSecrets(text)...)
			case "env", "username", "password", "credentials":
				list = appendSecrets(list, x, true)
			default:
				list = appendSecrets(list, x, all || name == "headers" && table)
			}
		}
	}
	return list
}
