package client_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/canned"

	"github.com/go-vercel/sandbox"
)

func BenchmarkRunCommand(b *testing.B) {
	stream := fmt.Sprintf(canned.Command, "null") + "\n" + `{"data":"hello\n","stream":"stdout"}` + "\n" + fmt.Sprintf(canned.Command, "0") + "\n"
	sb := canned.Box(b, func(*http.Request) (string, string) { return "application/x-ndjson", stream })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sb.RunCommand(b.Context(), "echo", []string{"hello"}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetCommand(b *testing.B) {
	resp := fmt.Sprintf(canned.Command, "0")
	sb := canned.Box(b, func(*http.Request) (string, string) { return "application/json", resp })
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
	command := fmt.Sprintf(canned.Command, "0")
	sb := canned.Box(b, canned.Log(command, log))
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
	const items = 50
	list := make([]string, items)
	for i := range list {
		list[i] = fmt.Sprintf(canned.Sandbox, i)
	}
	page := `{"sandboxes":[` + strings.Join(list, ",") + `],"pagination":{"count":50,"next":null}}`
	c := canned.Client(b, func(*http.Request) (string, string) { return "application/json", page })
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
	sb := canned.Box(b, func(*http.Request) (string, string) { return "application/json", "{}" })
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
			Match:     &sandbox.PolicyMatch{Path: &sandbox.PolicyMatcher{StartsWith: new("/v1/")}, Method: []string{"GET", "POST"}},
			Transform: []sandbox.PolicyTransform{{Headers: map[string]string{"Authorization": "Bearer secret"}}},
		}}
	}
	b.Run("write", func(b *testing.B) {
		resp := `{"session":` + canned.Session + `}`
		sb := canned.Box(b, func(*http.Request) (string, string) { return "application/json", resp })
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
		resp := `{"session":` + strings.TrimSuffix(canned.Session, "}") + `,"networkPolicy":` + custom + `},"routes":[]}`
		sb := canned.Box(b, func(*http.Request) (string, string) { return "application/json", resp })
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
