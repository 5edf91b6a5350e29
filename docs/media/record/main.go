// Record makes docs/media/quickstart.svg and docs/media/agent.svg anew: it runs
// the quickstart and a command whose connection is cut, and the agent's example,
// all against the emulator, and draws what a terminal would show.
//
//	go run ./docs/media/record
//
// What differs from run to run (times) is written as one value, so that the same
// code gives the same picture.
package main

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func main() {
	for file, record := range map[string]func(context.Context, *sandboxtest.Server, *screen) error{
		"docs/media/quickstart.svg": start, "docs/media/agent.svg": agent,
	} {
		if err := write(context.Background(), file, record); err != nil {
			log.Fatal(err)
		}
	}
}

func write(ctx context.Context, file string, record func(context.Context, *sandboxtest.Server, *screen) error) error {
	srv, err := sandboxtest.NewServer(nil)
	if err != nil {
		return err
	}
	defer srv.Close()
	var s screen
	if err := record(ctx, srv, &s); err != nil {
		return err
	}
	return os.WriteFile(file, s.draw(), 0o644)
}

func start(ctx context.Context, srv *sandboxtest.Server, s *screen) error {
	s.label = "The quickstart in a terminal, and a command whose output survives three cuts"
	s.prompt("go run ./cmd/sandbox-emulator go run ./examples/quickstart")
	if err := quickstart(ctx, srv, s); err != nil {
		return err
	}
	s.wait(1)
	s.line("dim", "")
	s.prompt("go run ./counting   # through a proxy that cuts the connection, three times")
	return counting(ctx, srv, s)
}

// agent shows the calls of a model in another colour than their results.
func agent(ctx context.Context, srv *sandboxtest.Server, s *screen) error {
	s.label = "A model in a terminal: it writes a program, sees it fail, mends it, and finds it again after the sandbox was stopped"
	s.prompt("go run ./cmd/sandbox-emulator go run ./examples/agent")
	out, err := example(ctx, srv, "./examples/agent")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		class := ""
		switch {
		case strings.HasPrefix(line, ">> "):
			s.wait(0.8)
			class = "prompt"
		case strings.HasPrefix(line, "-- "):
			s.wait(0.8)
			class = "ok"
		case strings.Contains(line, "Error"):
			class = "cut"
		}
		s.line(class, strings.TrimRight(line, "\n"))
	}
	return nil
}

var duration = regexp.MustCompile(`\b[0-9.]+m?s\b`)

func quickstart(ctx context.Context, srv *sandboxtest.Server, s *screen) error {
	out, err := example(ctx, srv, "./examples/quickstart")
	for line := range strings.Lines(out) {
		s.line("", duration.ReplaceAllString(strings.TrimRight(line, "\n"), "0.9s"))
	}
	return err
}

// example returns the output of a program of this module.
func example(ctx context.Context, srv *sandboxtest.Server, name string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "run", name)
	cmd.Env = append(os.Environ(), srv.Environ()...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(out), nil
}

const every, times = 3, 3

// counting runs a command that counts, behind a proxy that cuts its output
// after every third line, three times.
func counting(ctx context.Context, srv *sandboxtest.Server, s *screen) error {
	target, err := url.Parse(srv.URL)
	if err != nil {
		return err
	}
	var cuts atomic.Int32
	var seen atomic.Int32 // records that were let through by the stream before
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host})
			r.Out.Host = target.Host
		},
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-ndjson") && cuts.Load() < times {
				r.Body = &cutting{ReadCloser: r.Body, after: int(seen.Add(every)), cut: func() { cuts.Add(1) }}
			}
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0),
	})
	defer proxy.Close()
	client, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: proxy.URL + target.Path, Credentials: auth.Static(srv.Credentials())})
	if err != nil {
		return err
	}
	sb, err := client.Create(ctx, nil)
	if err != nil {
		return err
	}
	cmd, err := sb.StartCommand(ctx, "sh", []string{"-c", "for i in $(seq 10); do echo $i; sleep 0.1; done"}, nil)
	if err != nil {
		return err
	}
	for line, err := range cmd.Lines(ctx) {
		if err != nil {
			return err
		}
		s.line("", line.Data)
		if n, err := strconv.Atoi(line.Data); err == nil && n%every == 0 && n <= times*every {
			s.line("cut", "      the connection is cut; it is made again, and the output goes on where it stopped")
		}
	}
	if cuts.Load() != times {
		return fmt.Errorf("the connection was cut %d times, not %d", cuts.Load(), times)
	}
	done, err := cmd.Wait(ctx)
	if err != nil {
		return err
	}
	s.line("ok", fmt.Sprintf("exit code %d; each line once, with %d cuts", done.ExitCode, cuts.Load()))
	return nil
}

// cutting breaks off a stream after some lines.
type cutting struct {
	io.ReadCloser
	after int
	cut   func()
}

func (c *cutting) Read(p []byte) (int, error) {
	if c.after <= 0 {
		c.cut()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(p)
	c.after -= bytes.Count(p[:n], []byte("\n"))
	return n, err
}

// screen is lines that appear one after the other.
type screen struct {
	label string // for those who don't see it
	rows  []row
	at    float64 // seconds
}

type row struct {
	class, text string
	at          float64
}

func (s *screen) wait(seconds float64) { s.at += seconds }

func (s *screen) line(class, text string) {
	s.wait(0.22)
	s.rows = append(s.rows, row{class, text, s.at})
}

func (s *screen) prompt(text string) {
	s.line("prompt", "$ "+text)
	s.wait(0.8)
}

// draw writes the picture: each row is shown at its time, the whole in a loop.
func (s *screen) draw() []byte {
	const width, height, top = 860, 19, 52
	total := s.at + 5
	var b bytes.Buffer
	tall := top + len(s.rows)*height + 14
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n", width, tall, width, tall, html.EscapeString(s.label))
	b.WriteString(`<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6d6d6;white-space:pre}.prompt{fill:#7cc7ff}.cut{fill:#ffb454}.ok{fill:#7ddc95}` + "\n")
	for i, r := range s.rows {
		start := 100 * r.at / total
		fmt.Fprintf(&b, "@keyframes r%d{0%%,%.2f%%{opacity:0}%.2f%%,100%%{opacity:1}}#r%d{animation:r%d %.2fs linear infinite}\n", i, start, start+0.01, i, i, total)
	}
	b.WriteString("@media(prefers-reduced-motion:reduce){text{animation:none!important}}</style>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#16181d"/><circle cx="20" cy="20" r="6" fill="#ff5f57"/><circle cx="40" cy="20" r="6" fill="#febc2e"/><circle cx="60" cy="20" r="6" fill="#28c840"/>`+"\n", width, tall)
	for i, r := range s.rows {
		fmt.Fprintf(&b, `<text id="r%d" class="%s" x="18" y="%d">%s</text>`+"\n", i, r.class, top+i*height, html.EscapeString(r.text))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
