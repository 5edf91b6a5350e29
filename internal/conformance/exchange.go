package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
)

func (ex *Exchange) matches(e *Entry) bool {
	if ex.On != "" {
		method, path, _ := strings.Cut(ex.On, " ")
		if method != e.Method || path != e.Path {
			return false
		}
	}
	for k, v := range ex.Query {
		found := false
		for _, pair := range e.Query {
			p := pair.([]any)
			found = found || p[0] == k && p[1] == v
		}
		if !found {
			return false
		}
	}
	if len(ex.Body) == 0 {
		return true
	}
	body, ok := e.jsonBody()
	if !ok {
		return false
	}
	for k, v := range ex.Body {
		if got, ok := body[k]; !ok || !reflect.DeepEqual(got, v) {
			return false
		}
	}
	return true
}

// piece is a part of a response that is sent, and flushed, separately.
type piece struct {
	data  []byte
	delay time.Duration
}

// response returns the header and the pieces of the response to send.
func (ex *Exchange) response() (http.Header, []piece, error) {
	header := http.Header{"Content-Type": nil} // nil: net/http must not guess one
	var pieces []piece
	one := func(data []byte, contentType string) {
		pieces = []piece{{data, 0}}
		header.Set("Content-Type", contentType)
	}
	switch {
	case present(ex.JSON):
		one(compactJSON(ex.JSON), "application/json")
	case ex.Text != nil:
		one([]byte(*ex.Text), "text/plain")
	case ex.Base64 != nil:
		data, err := decodeBase64(*ex.Base64)
		if err != nil {
			return nil, nil, err
		}
		one(data, "application/octet-stream")
	case ex.Bytes != nil:
		data, err := ex.Bytes.Bytes()
		if err != nil {
			return nil, nil, err
		}
		one(data, "application/octet-stream")
	case ex.NDJSON != nil:
		one(ndjsonBytes(ex.NDJSON), "application/x-ndjson")
	case ex.Chunks != nil:
		header.Set("Content-Type", "application/x-ndjson")
		for i := range ex.Chunks {
			data, err := ex.Chunks[i].Bytes()
			if err != nil {
				return nil, nil, err
			}
			delay := 40.0
			if ex.Chunks[i].DelayMs != nil {
				delay = *ex.Chunks[i].DelayMs
			}
			pieces = append(pieces, piece{data, millis(delay)})
		}
	}
	for k, v := range ex.Headers {
		switch v := v.(type) {
		case nil:
			header[http.CanonicalHeaderKey(k)] = nil
		case []any:
			header.Del(k)
			for _, x := range v {
				header.Add(k, fmt.Sprint(x))
			}
		case float64:
			header.Set(k, strconv.FormatFloat(v, 'f', -1, 64))
		default:
			header.Set(k, fmt.Sprint(v))
		}
	}
	return header, pieces, nil
}

// content returns the whole body of the response.
func (ex *Exchange) content() ([]byte, error) {
	all := []byte{}
	_, pieces, err := ex.response()
	for _, p := range pieces {
		all = append(all, p.data...)
	}
	return all, err
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
