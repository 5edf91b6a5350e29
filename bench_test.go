package sandbox_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// cannedTransport answers every request from memory, so that a benchmark
// measures what the SDK does around it.
type cannedTransport func(*http.Request) (contentType, body string)

func (f cannedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
		if err := req.Body.Close(); err != nil {
			return nil, err
		}
	}
	contentType, body := f(req)
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {contentType}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

const (
	cannedSession = `{"id":"sess_1","memory":4096,"vcpus":2,"region":"iad1","runtime":"node24","timeout":300000,"status":"running",` +
		`"requestedAt":1760000000000,"startedAt":1760000000500,"createdAt":1760000000000,"cwd":"/vercel/sandbox","updatedAt":1760000000500}`
	cannedSandbox = `{"name":"box-%d","persistent":true,"region":"iad1","vcpus":2,"memory":4096,"runtime":"node24","timeout":300000,` +
		`"networkPolicy":{"mode":"allow-all"},"totalEgressBytes":1000,"totalIngressBytes":2000,"createdAt":1760000000000,"updatedAt":1760000000500,` +
		`"currentSessionId":"sess_1","status":"running","statusUpdatedAt":1760000000200,"cwd":"/vercel/sandbox","tags":{"env":"test","team":"sdk"}}`
	cannedCommand = `{"command":{"id":"cmd_1","name":"echo","args":["hello"],"cwd":"/vercel/sandbox","sessionId":"sess_1","exitCode":%s,"startedAt":1760000001000}}`
)

func cannedClient(b testing.TB, resp cannedTransport) *sandbox.Client {
	b.Helper()
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL:     "https://api.test",
		HTTPClient:  &http.Client{Transport: resp},
		Credentials: auth.Static(auth.Credentials{Token: "token", TeamID: "team", ProjectID: "project"}),
	})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func cannedBox(b testing.TB, resp cannedTransport) *sandbox.Sandbox {
	b.Helper()
	created := false
	c := cannedClient(b, func(req *http.Request) (string, string) {
		if !created {
			created = true
			return "application/json", `{"sandbox":` + fmt.Sprintf(cannedSandbox, 0) + `,"session":` + cannedSession + `,"routes":[]}`
		}
		return resp(req)
	})
	sb, err := c.Create(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	return sb
}

// cannedLog answers with a command and its log.
func cannedLog(command, log string) cannedTransport {
	return func(req *http.Request) (string, string) {
		if strings.HasSuffix(req.URL.Path, "/logs") {
			return "application/x-ndjson", log
		}
		return "application/json", command
	}
}

func BenchmarkRunCommand(b *testing.B) {
	stream := fmt.Sprintf(cannedCommand, "null") + "\n" + `{"data":"hello\n","stream":"stdout"}` + "\n" + fmt.Sprintf(cannedCommand, "0") + "\n"
	sb := cannedBox(b, func(*http.Request) (string, string) { return "application/x-ndjson", stream })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sb.RunCommand(b.Context(), "echo", []string{"hello"}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetCommand(b *testing.B) {
	resp := fmt.Sprintf(cannedCommand, "0")
	sb := cannedBox(b, func(*http.Request) (string, string) { return "application/json", resp })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sb.GetCommand(b.Context(), "cmd_1"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLogs(b *testing.B) {
	const lines = 1000
	line := `{"data":"` + strings.Repeat("0123456789", 10) + `\n","stream":"stdout"}` + "\n"
	log := strings.Repeat(line, lines)
	command := fmt.Sprintf(cannedCommand, "0")
	sb := cannedBox(b, cannedLog(command, log))
	cmd, err := sb.GetCommand(b.Context(), "cmd_1")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Logs", func(b *testing.B) {
		b.SetBytes(int64(len(log)))
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			for _, err := range cmd.Logs(b.Context()) {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != lines {
				b.Fatalf("%d lines", n)
			}
		}
	})
	b.Run("LogChunks", func(b *testing.B) {
		b.SetBytes(int64(len(log)))
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			for _, err := range cmd.LogChunks(b.Context()) {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != lines {
				b.Fatalf("%d lines", n)
			}
		}
	})
}

func BenchmarkList(b *testing.B) {
	const items = 100
	list := make([]string, items)
	for i := range list {
		list[i] = fmt.Sprintf(cannedSandbox, i)
	}
	page := `{"sandboxes":[` + strings.Join(list, ",") + `],"pagination":{"count":100,"next":null}}`
	c := cannedClient(b, func(*http.Request) (string, string) { return "application/json", page })
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range c.List(b.Context(), &sandbox.ListOptions{Limit: items}) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != items {
			b.Fatalf("%d sandboxes", n)
		}
	}
}

func BenchmarkWriteFiles(b *testing.B) {
	sb := cannedBox(b, func(*http.Request) (string, string) { return "application/json", "{}" })
	content := []byte(strings.Repeat("some text of a file\n", 200))
	files := make([]sandbox.File, 100)
	for i := range files {
		files[i] = sandbox.File{Path: fmt.Sprintf("dir/file-%d.txt", i), Content: content}
	}
	b.SetBytes(int64(len(files) * len(content)))
	b.ReportAllocs()
	for b.Loop() {
		if err := sb.WriteFiles(b.Context(), files, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNetworkPolicy(b *testing.B) {
	policy := &sandbox.NetworkPolicy{Rules: map[string][]sandbox.PolicyRule{}}
	for i := range 20 {
		policy.Rules[fmt.Sprintf("host-%d.example.com", i)] = []sandbox.PolicyRule{{
			Match:     &sandbox.PolicyMatch{Path: sandbox.MatchPrefix("/v1/"), Method: []string{"GET", "POST"}},
			Transform: []sandbox.PolicyTransform{{Headers: map[string]string{"Authorization": "Bearer secret"}}},
		}}
	}
	b.Run("write", func(b *testing.B) {
		resp := `{"session":` + cannedSession + `}`
		sb := cannedBox(b, func(*http.Request) (string, string) { return "application/json", resp })
		b.ReportAllocs()
		for b.Loop() {
			if _, err := sb.UpdateNetworkPolicy(b.Context(), policy); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		rules := make([]string, 20)
		for i := range rules {
			rules[i] = fmt.Sprintf(`{"domain":"host-%d.example.com","headerNames":["authorization"],"match":{"path":{"startsWith":"/v1/"},"method":["GET","POST"]}}`, i)
		}
		custom := `{"mode":"custom","injectionRules":[` + strings.Join(rules, ",") + `]}`
		resp := `{"session":` + strings.TrimSuffix(cannedSession, "}") + `,"networkPolicy":` + custom + `},"routes":[]}`
		sb := cannedBox(b, func(*http.Request) (string, string) { return "application/json", resp })
		b.ReportAllocs()
		for b.Loop() {
			if err := sb.CurrentSession().Refresh(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("JSON", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			data, err := json.Marshal(policy)
			if err != nil {
				b.Fatal(err)
			}
			var back sandbox.NetworkPolicy
			if err := json.Unmarshal(data, &back); err != nil {
				b.Fatal(err)
			}
		}
	})
}
