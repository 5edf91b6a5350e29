package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"

	"github.com/go-vercel/sandbox/internal/wire"
)

// TestTooManyObjects: a page of empty objects, which compress well and use a KiB of memory
// each, is refused before it is decoded.
func TestTooManyObjects(t *testing.T) {
	t.Parallel()
	for n, refused := range map[int]bool{100: false, wire.MaxObjects - 10: false, 2 * wire.MaxObjects: true} {
		page := `{"sandboxes":[{}` + strings.Repeat(",{}", n-1) + `],"pagination":{"next":null}}`
		c := testClient(roundTripper(func(*http.Request) (*http.Response, error) { return respond(200, page), nil }))
		var got wire.SandboxesPage
		err := c.Do(t.Context(), &Request{Op: ListSandboxes}, &got)
		if !refused {
			require.NoError(t, err)
			assert.Len(t, got.Sandboxes, n)
			continue
		}
		require.ErrorContains(t, err, "more than 100,000 objects")
		assert.Nil(t, got.Sandboxes)
	}
}

// TestBracesOfArguments: arguments that contain braces do not count as objects.
func TestBracesOfArguments(t *testing.T) {
	t.Parallel()
	braces := strings.Repeat(`{\"{`, wire.MaxObjects/2+1)
	one := `{"id":"c","name":"sh","args":["` + braces + `"],"cwd":"/","sessionId":"s","startedAt":1,"exitCode":7.0}`
	c := testClient(roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodGet {
			return respond(200, `{"commands":[`+one+`,`+one+`]}`), nil
		}
		return respond(200, `{"command":`+one+`}`), nil
	}))
	want := strings.ReplaceAll(braces, `\`, "")
	var got wire.CommandResponse
	require.NoError(t, c.Do(t.Context(), &Request{Op: StartCommand, Path: []string{"s"}}, &got))
	assert.True(t, got.Command.Args[0] == want)
	assert.Equal(t, 7, *got.Command.ExitCode, "7.0 is decoded into an int")
	var list wire.CommandsResponse
	require.NoError(t, c.Do(t.Context(), &Request{Op: ListCommands, Path: []string{"s"}}, &list))
	require.Len(t, list.Commands, 2)
	assert.True(t, list.Commands[1].Args[0] == want)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestTooMuch: an endless response, in any of its parts, is abandoned and not requested
// again. The outcome of its operation is unknown.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	count := 2
	if needs.Slow() {
		count = 10
	}
	for _, x := range []struct {
		op   *Op
		out  any
		head string
		unit string
	}{
		// The first two, objects and arguments, run by default. The slow run tests all.
		{ListSandboxes, &wire.SandboxesPage{}, `{"sandboxes":[{}`, ",{}"},
		{StartCommand, &wire.CommandResponse{}, `{"command":{"args":["`, "x"},
		{ListSandboxes, &wire.SandboxesPage{}, `{"sandboxes":[`, " "},
		{ListCommands, &wire.CommandsResponse{}, `{"commands":[{"id":"`, "x"},
		{ListCommands, &wire.CommandsResponse{}, `{"commands":[{}`, ",null"},
		{ListSandboxes, &wire.SandboxesPage{}, `{"sandboxes":[{}`, `,{"name":"` + strings.Repeat("x", 1<<20) + `"}`},
		{ListSandboxes, &wire.SandboxesPage{}, `{"more":["`, "x"},
		{ListSandboxes, &wire.SandboxesPage{}, `{"`, "x"},
		{ListSandboxes, &wire.SandboxesPage{}, `{"more":[0`, ",0"},
		{StartCommand, &wire.CommandResponse{}, `{"command":{"more":[{}`, ",{}"},
	}[:count] {
		requests := 0
		c := testClient(roundTripper(func(*http.Request) (*http.Response, error) {
			requests++
			resp := respond(200, "")
			unit := x.unit
			for len(unit) < 32<<10 {
				unit += unit
			}
			next := x.head
			resp.Body, resp.ContentLength = io.NopCloser(readerFunc(func(p []byte) (int, error) {
				if next == "" {
					next = unit
				}
				n := copy(p, next)
				next = next[n:]
				return n, nil
			})), -1
			return resp, nil
		}))
		err := c.Do(t.Context(), &Request{Op: x.op, Path: []string{"s"}}, x.out)
		f, _ := errors.AsType[*Failure](err)
		require.NotNil(t, f, "%s…%.5s: %v", x.head, x.unit, err)
		assert.True(t, f.Err == wire.ErrTooLarge || f.Err == wire.ErrTooMany, "%s…%.5s: %v", x.head, x.unit, f.Err)
		assert.Equal(t, TooMuch, f.Kind)
		assert.Equal(t, x.op.Class == Once, f.OutcomeUnknown())
		assert.Equal(t, 1, requests, "%s…%.5s", x.head, x.unit)
	}
}

// TestListings: a page is decoded as by encoding/json. It is refused if encoding/json
// fails, or if a part is missing.
func TestListings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testListings) // refused responses are retried, with pauses
}

func testListings(t *testing.T) {
	for _, text := range []string{
		`{"sandboxes":[],"pagination":{"count":0,"next":null}}`,
		`{"sandboxes":[{"name":"a","tags":{"x":"[{"}},{"name":"b","vcpus":2}],"pagination":{"count":2,"next":"c"}}`,
		` { "pagination" : { "next" : null , "count" : 1 } , "new":[[{}]], "sandboxes" : [ { "vcpus" : -2 , "name" : "\u00e9\n" } ] } `,
		`{"sandboxes":[{"name":"a"},{"name":5}],"pagination":{"next":null}}`,
		`{"sandboxes":[{"name":"a"}],"pagination":{"next":null}}x`,
		`{"sandboxes":[{"name":"a"}],"pagination":{"next":null}`,
		`{"sandboxes":[{"name":"a"}]}`, `{"sandboxes":[],"pagination":{"count":0}}`, `{"sandboxes":[],"pagination":null}`,
		`{"sandboxes":[{"name":"a"},],"pagination":{"next":null}}`,
		`{"sandboxes":[{"name":"a"} {"name":"b"}],"pagination":{"next":null}}`,
		`{"sandboxes":null,"pagination":{"next":null}}`, `{"sandboxes":{},"pagination":{"next":null}}`,
		`{}`, `[]`, `null`, ``, `5`, `<html>`, `{"sandboxes"`, `{"sandboxes":[`, `{"sandboxes":[]`, `{5:[]}`,
	} {
		c := testClient(roundTripper(func(*http.Request) (*http.Response, error) { return respond(200, text), nil }))
		var got, want wire.SandboxesPage
		wantErr := json.Unmarshal([]byte(text), &want)
		for _, part := range []string{`"sandboxes":[`, `"next":`} {
			if !strings.Contains(strings.ReplaceAll(text, " ", ""), part) {
				wantErr = errors.New("not a page")
			}
		}
		err := c.Do(t.Context(), &Request{Op: ListSandboxes}, &got)
		if assert.Equal(t, wantErr == nil, err == nil, "%s: %v", text, err) && err == nil {
			assert.Equal(t, want, got, text)
		}
	}
}

// TestRepeatedKeys: the check of a response uses the decoded value, so that a key that is
// repeated, or in another case, can't make another object look like the requested one.
func TestRepeatedKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, key := range []string{"name", "Name", "NAME", "n\\u0061me"} {
			for _, other := range []bool{true, false} {
				names := []string{"mine", "other"}
				if !other {
					names = []string{"other", "mine"}
				}
				for _, text := range []string{
					fmt.Sprintf(`{"sandbox":{"name":%q,"%s":%q},"session":{"id":"s"}}`, names[0], key, names[1]),
					fmt.Sprintf(`{"sandbox":{"%s":%q,"name":%q},"session":{"id":"s"}}`, key, names[0], names[1]),
					fmt.Sprintf(`{"sandbox":{"name":%q},"session":{"id":"s"},"Sandbox":{"%s":%q}}`, names[0], key, names[1]),
				} {
					c := testClient(roundTripper(func(*http.Request) (*http.Response, error) { return respond(200, text), nil }))
					var got wire.SandboxResponse
					err := c.Do(t.Context(), &Request{Op: GetSandbox, Path: []string{"mine"}}, &got)
					assert.Equal(t, other, err != nil, text)
					if err == nil {
						assert.Equal(t, "mine", got.Sandbox.Name, text)
					}
				}
			}
		}
	})
}

// BenchmarkListing reads a page of a hundred sandboxes, with the client and without it.
func BenchmarkListing(b *testing.B) {
	list := make([]string, 100)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"box-%d","persistent":true,"region":"iad1","vcpus":2,"memory":4096,"runtime":"node24","timeout":300000,`+
			`"networkPolicy":{"mode":"allow-all"},"totalEgressBytes":1000,"totalIngressBytes":2000,"totalActiveCpuDurationMs":1234,"totalDurationMs":56789,`+
			`"createdAt":1760000000000,"updatedAt":1760000000500,"currentSessionId":"sess_1","status":"running","statusUpdatedAt":1760000000200,`+
			`"cwd":"/vercel/sandbox","tags":{"env":"perf","team":"sdk"}}`, i)
	}
	page := `{"sandboxes":[` + strings.Join(list, ",") + `],"pagination":{"count":100,"next":"abc"}}`
	rt := roundTripper(func(*http.Request) (*http.Response, error) { return respond(200, page), nil })
	c := testClient(rt)
	b.Run("client", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		b.ReportAllocs()
		for b.Loop() {
			var got wire.SandboxesPage
			if err := c.Do(b.Context(), &Request{Op: ListSandboxes}, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("net-http-and-encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		b.ReportAllocs()
		hc := &http.Client{Transport: rt}
		for b.Loop() {
			resp, err := hc.Get("https://api.test/v2/sandboxes")
			if err != nil {
				b.Fatal(err)
			}
			var got wire.SandboxesPage
			if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
				b.Fatal(err)
			}
			resp.Body.Close()
		}
	})
}
