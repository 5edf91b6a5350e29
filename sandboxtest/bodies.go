package sandboxtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// maxJSON bounds a JSON body.
const maxJSON = 4 << 20

// bodyReader reads the request's body. It limits the size and the time.
type bodyReader struct {
	body io.Reader
	ctl  *http.ResponseController
	// idle limits the time of each read. Zero means that the deadline of the whole body
	// was already set.
	idle time.Duration
}

// body returns a request body of at most limit bytes, which may take any time while data
// keeps arriving.
func (c *call) body(limit int64) *bodyReader {
	return &bodyReader{
		body: http.MaxBytesReader(nil, c.r.Body, limit),
		ctl:  http.NewResponseController(c.w),
		idle: c.s.opts.BodyTimeout,
	}
}

// shortBody returns a body that must arrive completely within a short time.
func (c *call) shortBody(limit int64) *bodyReader {
	b := c.body(limit)
	_ = b.ctl.SetReadDeadline(time.Now().Add(b.idle)) // Read says why the error is ignored
	b.idle = 0
	return b
}

func (b *bodyReader) Read(p []byte) (int, error) {
	if b.idle > 0 {
		// Ignore errors: if the connection has no deadlines, the body may be slow.
		_ = b.ctl.SetReadDeadline(time.Now().Add(b.idle))
	}
	n, err := b.body.Read(p)
	if err != nil {
		_ = b.ctl.SetReadDeadline(time.Time{})
		err = bodyError(err)
	}
	return n, err
}

// hasContentType reports whether a request has the Content-Type of its operation. A method
// that can have a body needs it even if there is none.
func (c *call) hasContentType(e *endpoint) bool {
	switch c.r.Method {
	case http.MethodPost, http.MethodPatch, http.MethodPut:
	default:
		return true
	}
	want := "application/json"
	if e.op == WriteFiles {
		want = "application/gzip"
	}
	kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	return err == nil && kind == want
}

// bodyError returns the error for a body that can't be read.
func bodyError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return reply.ErrTooLarge
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return reply.ErrSlowBody
	}
	return err
}

// respond responds with v. If err is not nil, it only returns that, for the error response.
func (c *call) respond(status int, v any, err error) error {
	if err == nil {
		reply.WriteJSON(c.w, status, v)
	}
	return err
}

// decode reads a JSON object of the usual size into v; see decodeUpTo.
func (c *call) decode(v any) error { return c.decodeUpTo(maxJSON, v) }

// decodeUpTo reads a JSON object of at most limit bytes into v. It ignores keys that
// begin with "__", which are private parameters of the service. An empty body is an empty
// object, and null equals absence except in a [nullable].
func (c *call) decodeUpTo(limit int64, v any) error {
	data, err := io.ReadAll(c.shortBody(limit))
	if err != nil {
		if e, ok := errors.AsType[*reply.Error](err); ok {
			return e
		}
		return reply.BadRequest("The request body could not be read.")
	}
	c.s.requests.setBody(c.record, data)
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}")
	}
	var present map[string]json.RawMessage
	if err := json.Unmarshal(data, &present); err != nil || present == nil {
		return reply.BadRequest("Invalid JSON: the request body should be an object.")
	}
	maps.DeleteFunc(present, func(key string, _ json.RawMessage) bool { return strings.HasPrefix(key, "__") })
	if data, err = json.Marshal(present); err != nil {
		return reply.BadRequest("Invalid JSON: the request body should be an object.")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		for _, field := range durationFields {
			if value := present[field]; len(value) > 0 && strings.ContainsAny(string(value[:1]), `"{[tf`) {
				return reply.Invalid("`%s` should be number.", field)
			}
		}
		return decodeError(err)
	}
	return nil
}

// nullable is a field for which null means something other than absence. If it is absent,
// both Null and Given are false.
type nullable[T any] struct {
	Value       T
	Given, Null bool
}

// UnmarshalJSON is also called for null, but not for an absent field.
func (n *nullable[T]) UnmarshalJSON(data []byte) error {
	if n.Null = string(data) == "null"; n.Null {
		return nil
	}
	n.Given = true
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(&n.Value)
}

// durationFields are in milliseconds. Their decoder's errors do not name the field.
var durationFields = []string{"timeout", "duration", "expiration", "snapshotExpiration"}

// decodeError names the wrong field and says what it should be.
func decodeError(err error) *reply.Error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := e.Type.String()
		switch kind := e.Type.Kind().String(); {
		case kind == "slice" || kind == "array":
			want = "array"
		case kind == "map" || kind == "struct":
			want = "object"
		case strings.Contains(kind, "int") || strings.Contains(kind, "float") || strings.Contains(want, "Duration"):
			want = "number"
		case kind == "bool":
			want = "boolean"
		}
		if e.Field == "" {
			return reply.Invalid("the body should be %s.", want)
		}
		return reply.Invalid("`%s` should be %s.", strings.TrimPrefix(e.Field, "sandboxParams."), want)
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return reply.Invalid("should NOT have additional property %.80s.", strings.ReplaceAll(field, `"`, "`"))
	}
	return reply.Invalid("%.200s", strings.TrimPrefix(err.Error(), "json: "))
}

// readObject reads a JSON object. It drops private parameters and fields that are null.
func (c *call) readObject() ([]byte, error) {
	raw := make(rawObject)
	if err := c.decode(&raw); err != nil {
		return nil, err
	}
	maps.DeleteFunc(raw, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	return json.Marshal(raw)
}

// rawObject is a JSON object with any fields.
type rawObject map[string]json.RawMessage
