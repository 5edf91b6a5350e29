// Preview serves a sandbox for each project under a host name of its own,
// http://PROJECT.localhost:8080. A visit creates the sandbox or wakes it, and
// it sleeps again when it has had no visitors for a while.
//
//	go run ./cmd/sandbox-emulator go run ./examples/preview # needs python3
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/preview"
)

const port = 3000

func main() {
	once := flag.Bool("once", false, "visit a preview, awake and asleep, and end")
	address := flag.String("addr", "127.0.0.1:8080", "the address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *address, *once)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address string, once bool) (err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	p := &previews{ctx: ctx, open: map[string]*site{}}
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // ends with Close
	defer func() { err = errors.Join(err, server.Close(), p.stop()) }()
	if once {
		return visit(ctx, p, l.Addr().String())
	}
	fmt.Printf("Open http://hello.localhost:%d\n", l.Addr().(*net.TCPAddr).Port)
	<-ctx.Done()
	return nil
}

// projects have a preview. Without such a list or a login, visitors could create
// sandboxes of any name, and so could every page that their browsers show.
var projects = []string{"hello", "docs"}

// previews passes each request on to the sandbox that its host names.
type previews struct {
	ctx  context.Context
	mu   sync.Mutex
	open map[string]*site
}

// site is a project's sandbox. The first visitor opens it, the others wait.
type site struct {
	once  sync.Once
	sb    *sandbox.Sandbox
	proxy *preview.Proxy
	err   error
}

func (p *previews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	project, _, _ := strings.Cut(r.Host, ".")
	if !slices.Contains(projects, project) {
		http.NotFound(w, r)
		return
	}
	p.mu.Lock()
	v := p.open[project]
	if v == nil {
		v = &site{}
		p.open[project] = v
	}
	p.mu.Unlock()
	v.once.Do(func() { v.sb, v.proxy, v.err = start(p.ctx, project) })
	if v.err != nil {
		log.Print(v.err)
		p.mu.Lock()
		delete(p.open, project) // the next visitor tries again
		p.mu.Unlock()
		http.Error(w, "this preview could not be started", http.StatusBadGateway)
		return
	}
	v.proxy.ServeHTTP(w, r)
}

// start gets or creates the sandbox of a project.
func start(ctx context.Context, project string) (*sandbox.Sandbox, *preview.Proxy, error) {
	sb, err := sandbox.GetOrCreate(ctx, "preview-"+project, &sandbox.CreateOptions{
		Ports: []int{port}, Timeout: 2 * time.Minute,
		OnCreate: func(ctx context.Context, sb *sandbox.Sandbox) error {
			page := []byte("Hello from " + project + "\n")
			return errors.Join(sb.FS().WriteFile(ctx, "index.html", page, 0o644), serve(ctx, sb))
		},
		OnResume: serve, // files survive a stop, processes do not
	})
	if err != nil {
		return nil, nil, err
	}
	// Visitors extend the session, so that at least a minute is left after the last one.
	return sb, preview.ReverseProxy(sb, port, &preview.Options{Idle: time.Minute}), nil
}

// serve starts the server unless it is running. EnsureCommand starts it once for
// all callers.
func serve(ctx context.Context, sb *sandbox.Sandbox) error {
	_, err := sb.EnsureCommand(ctx, "web", "python3", []string{"-m", "http.server", fmt.Sprint(port)}, &sandbox.EnsureOptions{Port: port})
	return err
}

// stop stops all sandboxes. The next visitor finds their files.
func (p *previews) stop() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.open {
		if v.sb != nil {
			err = errors.Join(err, v.sb.Close())
		}
	}
	return err
}

// visit requests a page of a new sandbox, and again after a stop.
func visit(ctx context.Context, p *previews, address string) error {
	for _, state := range []string{"new", "stopped"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
		if err != nil {
			return err
		}
		req.Host = "hello.localhost"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		fmt.Printf("%s: %s, %s", state, resp.Status, text)
		if _, err := p.open["hello"].sb.Stop(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}
