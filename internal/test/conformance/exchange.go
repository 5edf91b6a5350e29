package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"
)

func (ex *Exchange) matches(e *Entry) bool {
	if ex.On != "" && ex.On != e.Method+" "+e.Path {
		return false
	}
	for k, v := range ex.Query {
		if !slices.ContainsFunc(e.Query, func(p any) bool { return differs("", []any{k, v}, p) == "" }) {
			return false
		}
	}
	body, _ := e.jsonBody()
	for k, v := range ex.Body {
		if got, ok := body[k]; !ok || !reflect.DeepEqual(got, v) {
			return false
		}
	}
	return true
}

// piece is a part of a response that the server sends and flushes separately.
type piece struct {
	data  []byte
	delay time.Duration
}

// response returns the header and the pieces of the response.
func (ex *Exchange) response() (http.Header, []piece) {
	var (
		data   []byte
		pieces []piece
		kind   = "application/octet-stream"
	)
	switch {
	case present(ex.JSON):
		data, kind = compactJSON(ex.JSON), "application/json"
	case ex.Text != nil:
		data, kind = []byte(*ex.Text), "text/plain"
	case ex.Base64 != nil:
		data = decodeBase64(*ex.Base64)
	case ex.Bytes != nil:
		data = ex.Bytes.Bytes()
	case ex.NDJSON != nil || ex.Chunks != nil:
		data, kind = ndjsonBytes(ex.NDJSON), "application/x-ndjson"
	default:
		kind = ""
	}
	if kind != "" && ex.Chunks == nil {
		pieces = []piece{{data, 0}}
	}
	for _, chunk := range ex.Chunks {
		delay := 40.0
		if chunk.DelayMs != nil {
			delay = *chunk.DelayMs
		}
		pieces = append(pieces, piece{chunk.Bytes(), millis(delay)})
	}
	header := http.Header{"Content-Type": nil} // nil keeps net/http from guessing a type
	if kind != "" {
		header.Set("Content-Type", kind)
	}
	for k, v := range ex.Headers {
		if header.Set(k, fmt.Sprint(v)); v == nil {
			header[http.CanonicalHeaderKey(k)] = nil
		}
	}
	return header, pieces
}

// responseBody returns the whole body of the response.
func (ex *Exchange) responseBody() []byte {
	all := []byte{}
	_, pieces := ex.response()
	for _, p := range pieces {
		all = append(all, p.data...)
	}
	return all
}

func ndjsonBytes(lines []json.RawMessage) []byte {
	var out []byte
	for _, l := range lines {
		var text string
		if json.Unmarshal(l, &text) == nil {
			out = append(out, text...)
		} else {
			out = append(out, compactJSON(l)...)
		}
		out = append(out, '\n')
	}
	return out
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
