package sandbox

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
)

// PolicyResponse is a response that the firewall returns itself, without
// sending the request. With a status such as 403 it blocks what its rule
// matches.
type PolicyResponse struct {
	// StatusCode is from 200 to 599.
	StatusCode int
	// Headers are sent with the response; Connection, Content-Length and
	// Transfer-Encoding can't be set. The program in the sandbox sees the
	// values, so they must not contain secrets.
	Headers map[string]string
	// Body requires a ContentType, and is not allowed with status 204, 205 or
	// 304. Nil sends none.
	Body        *string
	ContentType string

	extra rawFields
}

func (r *PolicyResponse) encode(bool) any {
	out := fields{"statusCode": r.StatusCode}
	if r.Headers != nil {
		out["headers"] = r.Headers
	}
	if r.Body != nil {
		out["body"] = *r.Body
	}
	if r.ContentType != "" {
		out["contentType"] = r.ContentType
	}
	return r.extra.into(out)
}

// MarshalJSON encodes the response like the JavaScript SDK.
func (r PolicyResponse) MarshalJSON() ([]byte, error) { return json.Marshal(r.encode(false)) }

// UnmarshalJSON decodes what MarshalJSON encodes.
func (r *PolicyResponse) UnmarshalJSON(data []byte) error {
	var read PolicyResponse
	var err error
	read.extra, err = decodeFields(data, fields{
		"statusCode": &read.StatusCode, "headers": &read.Headers, "body": &read.Body, "contentType": &read.ContentType,
	})
	return store(r, read, err)
}

func (r *PolicyResponse) clone() *PolicyResponse {
	if r == nil {
		return nil
	}
	return &PolicyResponse{
		StatusCode: r.StatusCode, Headers: maps.Clone(r.Headers), Body: clonePtr(r.Body), ContentType: r.ContentType, extra: r.extra.clone(),
	}
}

func (r *PolicyResponse) check(at string) error {
	if r.StatusCode < 200 || r.StatusCode > 599 {
		return invalid(at+".StatusCode", "%d is outside 200 to 599", r.StatusCode)
	}
	if r.Body != nil {
		switch r.StatusCode {
		case http.StatusNoContent, http.StatusResetContent, http.StatusNotModified:
			return invalid(at+".Body", "an answer of status %d has none", r.StatusCode)
		}
		if r.ContentType == "" {
			return invalid(at+".ContentType", "is empty; a Body needs one")
		}
		if err := checkText(at+".Body", *r.Body); err != nil {
			return err
		}
	}
	if strings.ContainsAny(r.ContentType, "\r\n\x00") {
		return invalid(at+".ContentType", "contains a line break or NUL")
	}
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		lower := strings.ToLower(name)
		switch lower {
		case "connection", "content-length", "transfer-encoding":
			return invalid(at+".Headers", "%s can't be set: it is the firewall's own", name)
		}
		if first, twice := seen[lower]; twice {
			return invalid(at+".Headers", "%s and %s are the same header", first, name)
		}
		seen[lower] = name
		switch {
		case !isToken(name):
			return invalid(at+".Headers", "%q can't be the name of a header", name)
		case strings.ContainsAny(r.Headers[name], "\r\n\x00"):
			return invalid(at+".Headers", "the value of %s contains a line break or NUL", name)
		}
	}
	return nil
}

func responseFromWire(w *wire.Response) *PolicyResponse {
	r := &PolicyResponse{StatusCode: w.StatusCode, Headers: maps.Clone(w.Headers), Body: clonePtr(w.Body)}
	if w.ContentType != nil {
		r.ContentType = *w.ContentType
	}
	return r
}
