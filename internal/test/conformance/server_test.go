package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
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

func TestPatterns(t *testing.T) {
	for _, tt := range []struct {
		pattern, value string
		same           bool
	}{
		{`{"a":1}`, `{"a":1,"b":2}`, true},
		{`{"a":1}`, `{"a":2}`, false},
		{`{"a":null}`, `{}`, true},
		{`{"a":"*"}`, `{"a":null}`, false},
		{`{"a":"*"}`, `{"a":0}`, true},
		{`{}`, `[]`, false},
		{`[1]`, `[1,2]`, false},
		{`[1,"…"]`, `[1,2]`, true},
		{`"~^4.4$"`, `404`, true},
		{`"~^4.4$"`, `"500"`, false},
		{`"!~^a"`, `"b"`, true},
		{`"!~^a"`, `null`, false},
		{`"be…"`, `"begins"`, true},
		{`{"anyOf":[0,"x"]}`, `"x"`, true},
		{`{"anyOf":[0,"x"]}`, `1`, false},
		{`{"a":{"b":"$c"}}`, `{"a":{"b":7}}`, true},
		{`{"a":{"b":"$d"}}`, `{"a":{"b":7}}`, false},
		{`{"$key":"$key"}`, `{"c":7}`, true},
		{`"$1"`, `"caught"`, true},
	} {
		pattern, _ := decodeJSON([]byte(tt.pattern))
		value, _ := decodeJSON([]byte(tt.value))
		pattern = expand(pattern, object{"c": 7.0}, "c", []string{"it caught", "caught"})
		assert.Equal(t, tt.same, matches(pattern, value), "%s and %s", tt.pattern, tt.value)
	}
}

func TestInterleaved(t *testing.T) {
	assert.True(t, interleaved("abcd", "ac", "bd"))
	assert.True(t, interleaved("aab", "ab", "a"))
	assert.False(t, interleaved("abdc", "ac", "dd"))
	assert.False(t, interleaved("abc", "ac", "bd"))
	assert.False(t, interleaved("bdca", "ac", "bd"))
}

func TestMended(t *testing.T) {
	assert.True(t, mended("a\uFFFD\uFFFD\uFFFDb\n", "a🚀b\n"))
	assert.True(t, mended("\uFFFDx\uFFFD", "éxü"))
	assert.False(t, mended("a\uFFFDb", "a🚀c"))
	assert.False(t, mended("a\uFFFD b", "axxb"))
	assert.False(t, mended("ab", "ab"))
}

// TestRulesAreKnown: what no pattern of a rule says is in the code, under the
// rule's name.
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
		assert.True(t, len(r.Unscripted)+len(r.Differences)+len(r.Words) > 0 || strings.Contains(code, `"`+r.Rule+`"`), "nothing knows the rule %s", r.Rule)
	}
}

// TestAbortOfATranslatedRequest: that the client has closed a request shows in
// what is logged for it, also where that is another request.
func TestAbortOfATranslatedRequest(t *testing.T) {
	t.Parallel()
	for _, rules := range []Rules{nil, LoadDepartures(dataDir).Rules} {
		path := "/api/v2/sandboxes/box"
		s := newServer([]Exchange{{On: "GET " + path, Hold: true, JSON: []byte("{}")}}, rules, &Scenario{Steps: []Step{{Op: "get"}}}, Recording{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if rules != nil {
			path += "?resume=true"
		}
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		r.Host = "127.0.0.1:1"
		s.ServeHTTP(httptest.NewRecorder(), r)
		require.Len(t, s.log, 1)
		assert.Equal(t, new(true), s.log[0].Closed, "rules: %v", rules)
	}
}
