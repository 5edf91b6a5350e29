package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCanonicalPath(t *testing.T) {
	for raw, want := range map[string]string{
		"/api/v2/sandboxes/my%20box": "/api/v2/sandboxes/my%20box",
		"/a%2fb/c":                   "/a%2Fb/c",
		"/it's(1)!":                  "/it's(1)!",
		"/é":                         "/%C3%A9",
		"/%zz":                       "/%zz",
		"/%ff":                       "/%ff",
	} {
		assert.Equal(t, want, CanonicalPath(raw), raw)
	}
}

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
	departures, err := LoadDepartures(dataDir)
	require.NoError(t, err)
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

// TestRefusedTogether makes two calls at the same time: neither learns that
// its session is gone before the other has arrived.
func TestRefusedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const session = "/api/v2/sandboxes/sessions/"
		s := newServer([]Exchange{
			{On: "POST " + session + "sess_1/cmd", Status: http.StatusGone},
			{On: "POST " + session + "sess_1/fs/mkdir", Status: http.StatusGone},
			{On: "POST " + session + "sess_2/cmd", Status: http.StatusGone},
		}, ServerOptions{AnyOrder: true})
		var answered atomic.Int32
		ask := func(path string) {
			go func() {
				w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, session+path, strings.NewReader("{}"))
				r.Host = "vercel.com"
				s.ServeHTTP(w, r)
				assert.Equal(t, http.StatusGone, w.Code)
				answered.Add(1)
			}()
			synctest.Wait()
		}
		ask("sess_1/cmd")
		assert.Zero(t, answered.Load(), "another call is on its way to the same session")
		ask("sess_1/fs/mkdir")
		assert.EqualValues(t, 2, answered.Load())
		ask("sess_2/cmd")
		assert.EqualValues(t, 3, answered.Load(), "nothing else is on its way to this one")
	})
}

// TestPipedIsSettled has writers that already received everything, while the
// command still checks whether that was all.
func TestPipedIsSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pair := &capturePair{stdout: &capture{}, ended: make(chan struct{})}
		_, err := pair.stdout.Write([]byte("all"))
		assert.NoError(t, err)
		d := &driver{scenario: &Scenario{}, piped: map[string]*capturePair{"c": pair}}
		c := &call{d: d, ctx: t.Context(), step: &Step{Op: "piped", On: new("c")}}
		var value any
		go func() { value, _ = opPiped(c, nil, pipedArgs{Stdout: 3}) }()
		synctest.Wait()
		assert.Nil(t, value, "the copying goes on")
		close(pair.ended)
		synctest.Wait()
		assert.Equal(t, object{"stdout": "all"}, value)
	})
}

func TestGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &driver{scenario: &Scenario{}, saved: object{}}
		slow := d.step(t.Context(), &Step{Op: "sleep", Args: []byte(`{"ms":600}`), GiveUpMs: 400}, true)
		assert.Equal(t, object{"op": "sleep", "value": nil}, slow, "slower than the limit on a busy machine")
		hung := d.step(t.Context(), &Step{Op: "sleep", Args: []byte(`{"ms":3600000}`), GiveUpMs: 400}, true)
		assert.Equal(t, object{"kind": "Hang"}, hung["error"])
		time.Sleep(time.Hour) // until the abandoned call has ended
	})
}

// TestAbortOfATranslatedRequest: that the client has closed a request shows in
// what is logged for it, also where that is another request.
func TestAbortOfATranslatedRequest(t *testing.T) {
	t.Parallel()
	for _, rules := range []Rules{nil, {{Rule: "get-starts"}}} {
		path := "/api/v2/sandboxes/box"
		s := newServer([]Exchange{{On: "GET " + path, Hold: true, JSON: []byte("{}")}}, ServerOptions{Rules: rules, Steps: []Step{{Op: "get"}}})
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
