package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCompare(t *testing.T) {
	const a, b, typed = `{"method":"GET","headers":{},"body":"a"}`, `{"method":"GET","headers":{},"body":"b"}`, `{"headers":{"content-type":"application/json"}`
	for _, tt := range []struct {
		name, part, want, got string
		anyOrder, same        bool
	}{
		{"a content type without a body is tolerated", "requests", typed + `,"body":null}`, `{"headers":{},"body":null}`, false, true},
		{"with a body it is not", "requests", typed + `,"body":"b"}`, `{"headers":{},"body":"b"}`, false, false},
		{"order matters", "requests", a + "," + b, b + "," + a, false, false},
		{"unless it does not", "requests", a + "," + b, b + "," + a, true, true},
		{"a request that is missing", "requests", a + "," + a, a, true, false},
		{"a request too many", "requests", a, a + "," + a, true, false},
		{"an ellipsis stands for any rest", "results", `"Can't parse JSON: …"`, `"Can't parse JSON: x"`, false, true},
		{"but not for another beginning", "results", `"Can't parse JSON: …"`, `"Can parse"`, false, false},
		{"the cause of an error is not compared", "results", `{"kind":"E","cause":"a"}`, `{"kind":"E"}`, false, true},
		{"null is not absence", "results", `{"value":null}`, `{}`, false, false},
		{"numbers are values", "results", `1`, `2`, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want, got Recording
			for text, into := range map[string]*Recording{tt.want: &want, tt.got: &got} {
				require.NoError(t, json.Unmarshal([]byte(`{"`+tt.part+`":[`+text+`]}`), into))
			}
			d := Compare(want, got, tt.anyOrder)
			assert.Equal(t, tt.same, d == "", d)
		})
	}
}

// TestRulesAreKnown: the code uses exactly the rules of departures.json.
func TestRulesAreKnown(t *testing.T) {
	departures := LoadDepartures(dataDir)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	code := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		code += string(text)
	}
	for _, r := range departures.Rules {
		assert.Contains(t, code, `"`+r.Rule+`"`)
	}
}

// TestAbortOfATranslatedRequest: if the client closes a request, the log shows this, even if the
// log contains another request in its place.
func TestAbortOfATranslatedRequest(t *testing.T) {
	t.Parallel()
	for on, asked := range map[string]string{"get": "?resume=true", "stop": ""} {
		const path = "/api/v2/sandboxes/box"
		s := newServer([]Exchange{{On: "GET " + path, Hold: true, JSON: []byte("{}")}}, &Scenario{Steps: []Step{{Op: on}}}, Recording{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path+asked, nil)
		r.Host = "127.0.0.1:1"
		s.ServeHTTP(httptest.NewRecorder(), r)
		require.Len(t, s.log, 1)
		assert.Equal(t, new(true), s.log[0].Closed, on)
	}
}
