// Command wan counts what each operation of the Go SDK costs over a long line:
// HTTP requests, new connections, and wall time in round trips, against the
// emulator behind a relay that adds a round trip of 60 ms and limits the rate
// to 200 Mbit/s each way.
//
//	wan [-markdown] [NAME-PART]
//
// runs all operations, or those whose name has the part, and prints a line for
// each, or a table.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	sandbox "github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/go-vercel/sandbox/terminal"
)

var conns atomic.Int64

// relay forwards with a one-way delay and a rate in bytes/s.
func relay(target string, delay time.Duration, rate float64) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	pipe := func(dst, src net.Conn) {
		type chunk struct {
			b  []byte
			at time.Time
		}
		ch := make(chan chunk, 4096)
		go func() {
			defer close(ch)
			next := time.Now()
			for {
				b := make([]byte, 32<<10)
				n, err := src.Read(b)
				if n > 0 {
					now := time.Now()
					if next.Before(now) {
						next = now
					}
					next = next.Add(time.Duration(float64(n) / rate * 1e9))
					if d := time.Until(next); d > 2*time.Millisecond {
						time.Sleep(d)
					}
					ch <- chunk{b[:n], time.Now().Add(delay)}
				}
				if err != nil {
					return
				}
			}
		}()
		for c := range ch {
			time.Sleep(time.Until(c.at))
			if _, err := dst.Write(c.b); err != nil {
				break
			}
		}
		if t, ok := dst.(*net.TCPConn); ok {
			t.CloseWrite()
		}
		for range ch {
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			go func() {
				// the handshake's round trip
				time.Sleep(2 * delay)
				s, err := net.Dial("tcp", target)
				if err != nil {
					c.Close()
					return
				}
				go pipe(s, c)
				pipe(c, s)
				s.Close()
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// lengthless takes the lengths of files from their responses.
type lengthless struct{ next http.RoundTripper }

func (l lengthless) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/fs/read") {
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	}
	return resp, err
}

func main() {
	rtt := 60 * time.Millisecond
	markdown := flag.Bool("markdown", false, "print a table")
	flag.Parse()
	only := flag.Arg(0)
	if *markdown {
		fmt.Print("| operation | requests | connections made | round trips | the API's own part |\n|---|---|---|---|---|\n")
	}
	srv, err := sandboxtest.NewServer(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	u, _ := url.Parse(srv.URL)
	u.Host = relay(u.Host, rtt/2, 200e6/8)
	cl, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: u.String(), Credentials: auth.Static(srv.Credentials())})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	var sb *sandbox.Sandbox
	always := map[string]bool{"create": true, "UploadDir 1000 files": true, "CreateUser": true}
	measure := func(name string, fn func() error) {
		if only != "" && !always[name] && !strings.Contains(name, only) {
			return
		}
		n0, c0, t0 := len(srv.Requests()), conns.Load(), time.Now()
		err := fn()
		d := time.Since(t0)
		reqs := srv.Requests()[n0:]
		kinds := map[string]int{}
		var server time.Duration
		for _, r := range reqs {
			kinds[string(r.Operation)]++
			server += r.Duration
		}
		var ks []string
		for k, v := range kinds {
			ks = append(ks, fmt.Sprintf("%d %s", v, k))
		}
		slices.Sort(ks)
		e := ""
		if err != nil {
			e = " ERROR " + err.Error()
		}
		if *markdown {
			fmt.Printf("| %s | %d (%s)%s | %d | %.1f | %.1f |\n", name, len(reqs), strings.Join(ks, ", "), e, conns.Load()-c0, d.Seconds()/rtt.Seconds(), server.Seconds()/rtt.Seconds())
			return
		}
		fmt.Printf("%-28s %4d requests %2d conns %8.3fs = %6.1f RTT (server %.3fs) [%s]%s\n", name, len(reqs), conns.Load()-c0, d.Seconds(), d.Seconds()/rtt.Seconds(), server.Seconds(), strings.Join(ks, ", "), e)
	}
	tmp, err := os.MkdirTemp("", "wan-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	local := filepath.Join(tmp, "tree")
	for i := range 1000 {
		p := filepath.Join(local, fmt.Sprintf("d%02d", i%50), fmt.Sprintf("f%03d.txt", i))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(p, bytes.Repeat([]byte{byte('a' + i%26)}, 2000), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	rnd := make([]byte, 64<<20)
	rand.NewChaCha8([32]byte{}).Read(rnd) // never fails
	measure("create", func() (err error) {
		sb, err = cl.Create(ctx, &sandbox.CreateOptions{Name: "wan", Ports: []int{3000}})
		return
	})
	measure("RunCommand true", func() error { _, err := sb.RunCommand(ctx, "true", nil, nil); return err })
	measure("RunCommand again", func() error { _, err := sb.RunCommand(ctx, "true", nil, nil); return err })
	measure("StartCommand+Wait", func() error {
		c, err := sb.StartCommand(ctx, "true", nil, nil)
		if err != nil {
			return err
		}
		_, err = c.Wait(ctx)
		return err
	})
	measure("StartCommand+Logs", func() error {
		c, err := sb.StartCommand(ctx, "echo", []string{"hi"}, nil)
		if err != nil {
			return err
		}
		for _, err := range c.Logs(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	measure("StartCommand+Logs+Wait", func() error {
		c, err := sb.StartCommand(ctx, "echo", []string{"hi"}, nil)
		if err != nil {
			return err
		}
		for _, err := range c.Logs(ctx) {
			if err != nil {
				return err
			}
		}
		_, err = c.Wait(ctx)
		return err
	})
	measure("StartCommand writers+Wait", func() error {
		c, err := sb.StartCommand(ctx, "echo", []string{"hi"}, &sandbox.StartOptions{Stdout: io.Discard})
		if err != nil {
			return err
		}
		_, err = c.Wait(ctx)
		return err
	})
	measure("Cmd.Output", func() error { _, err := sb.CommandContext(ctx, "echo", "hi").Output(); return err })
	measure("Cmd stdin 1 KiB", func() error {
		c := sb.CommandContext(ctx, "cat")
		c.Stdin = bytes.NewReader(rnd[:1024])
		_, err := c.Output()
		return err
	})
	measure("Cmd stdin 1 MiB", func() error {
		c := sb.CommandContext(ctx, "wc", "-c")
		c.Stdin = bytes.NewReader(rnd[:1<<20])
		_, err := c.Output()
		return err
	})
	fsys := sb.FS()
	measure("FS.WriteFile 1 KiB", func() error { return fsys.WriteFile(ctx, "a.txt", rnd[:1024], 0o644) })
	measure("FS.ReadFile 1 KiB", func() error { _, err := fsys.ReadFile(ctx, "a.txt"); return err })
	// The service does not say how long a file is, which the emulator does of small ones.
	asService, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: u.String(), Credentials: auth.Static(srv.Credentials()),
		HTTPClient: &http.Client{Transport: lengthless{http.DefaultTransport.(*http.Transport).Clone()}},
	})
	if err != nil {
		log.Fatal(err)
	}
	served, err := asService.Get(ctx, "wan", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := served.FS().WriteFile(ctx, "64MiB", rnd, 0o644); err != nil {
		log.Fatal(err)
	}
	if err := served.FS().WriteFile(ctx, "1KiB", rnd[:1024], 0o644); err != nil {
		log.Fatal(err)
	}
	if _, err := served.RunCommand(ctx, "true", nil, nil); err != nil { // a connection more
		log.Fatal(err)
	}
	for _, size := range []string{"1KiB", "64MiB"} {
		for range 3 { // in turns, as the machine has other things to do
			for _, no := range []bool{true, false} {
				name := map[bool]string{true: "size not checked", false: "size checked"}[no]
				measure("FS.Open "+size+", "+name, func() error {
					r, err := served.FS().Open(ctx, size, &sandbox.OpenOptions{NoSizeCheck: no})
					if err != nil {
						return err
					}
					defer r.Close()
					_, err = io.Copy(io.Discard, r)
					return err
				})
			}
		}
	}
	measure("FS.Stat", func() error { _, err := fsys.Stat(ctx, "a.txt"); return err })
	measure("FS.Exists", func() error { _, err := fsys.Exists(ctx, "a.txt"); return err })
	measure("FS.AppendFile", func() error { return fsys.AppendFile(ctx, "a.txt", rnd[:1024]) })
	measure("FS.Rename", func() error { return fsys.Rename(ctx, "a.txt", "b.txt") })
	measure("FS.RemoveAll", func() error { return fsys.RemoveAll(ctx, "b.txt") })
	measure("UploadDir 1000 files", func() error { return sb.FS().UploadDir(ctx, local, "tree", nil) })
	measure("DownloadDir 1000 files", func() error { return sb.FS().DownloadDir(ctx, "tree", filepath.Join(tmp, "down"), nil) })
	measure("WalkDir 1000 files", func() error {
		return fsys.WalkDir(ctx, "tree", func(p string, d fs.DirEntry, err error) error { return err })
	})
	measure("WalkDir+Info 1000 files", func() error {
		return fsys.WalkDir(ctx, "tree", func(p string, d fs.DirEntry, err error) error {
			if err == nil {
				_, err = d.Info()
			}
			return err
		})
	})
	measure("fs.WalkDir of IOFS 1000 files", func() error {
		return fs.WalkDir(fsys.IOFS(ctx, "tree"), ".", func(p string, d fs.DirEntry, err error) error { return err })
	})
	measure("IOFS read 50 files", func() error {
		fy := fsys.IOFS(ctx, "tree")
		for i := range 50 {
			if _, err := fs.ReadFile(fy, fmt.Sprintf("d%02d/f%03d.txt", i, i)); err != nil {
				return err
			}
		}
		return nil
	})
	measure("FileWriter 64 MiB", func() error {
		w, err := fsys.Create(ctx, "big", nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(w, bytes.NewReader(rnd)); err != nil {
			return err
		}
		return w.Close()
	})
	measure("WriteFiles 64 MiB", func() error { return sb.WriteFiles(ctx, []sandbox.File{{Path: "big2", Content: rnd}}, nil) })
	measure("DownloadFile 64 MiB", func() error { return sb.FS().DownloadFile(ctx, "big2", filepath.Join(tmp, "big"), nil) })
	measure("CreateUser", func() error { _, err := sb.CreateUser(ctx, "alice"); return err })
	al, _ := sb.AsUser("alice")
	measure("user RunCommand", func() error { _, err := al.RunCommand(ctx, "id", nil, nil); return err })
	measure("user WriteFiles", func() error { return al.FS().WriteFiles(ctx, []sandbox.File{{Path: "x", Content: []byte("hi")}}, nil) })
	measure("user WriteFiles again", func() error { return al.FS().WriteFiles(ctx, []sandbox.File{{Path: "x", Content: []byte("hi")}}, nil) })
	measure("user WriteFiles nested", func() error {
		return al.FS().WriteFiles(ctx, []sandbox.File{{Path: "a/b/x", Content: []byte("hi")}}, nil)
	})
	measure("CreateGroup", func() error { _, err := sb.CreateGroup(ctx, "devs"); return err })
	measure("user ReadFile", func() error {
		r, err := al.FS().Open(ctx, "x", nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		return err
	})
	measure("Shell open+exit", func() error {
		sh, err := terminal.Open(ctx, sb, &terminal.ShellOptions{Command: "echo", Args: []string{"hi"}})
		if err != nil {
			return err
		}
		go io.Copy(io.Discard, sh)
		_, err = sh.Wait(ctx)
		return err
	})
	measure("64 RunCommand concurrent", func() error {
		ch := make(chan error, 64)
		for range 64 {
			go func() { _, err := sb.RunCommand(ctx, "true", nil, nil); ch <- err }()
		}
		for range 64 {
			if err := <-ch; err != nil {
				return err
			}
		}
		return nil
	})
	measure("Stop", func() error { _, err := sb.Stop(ctx, nil); return err })
	measure("RunCommand resuming", func() error { _, err := sb.RunCommand(ctx, "true", nil, nil); return err })
	measure("GetOrCreate existing", func() error { _, err := cl.GetOrCreate(ctx, "wan", nil); return err })
	measure("GetOrCreate new", func() error { _, err := cl.GetOrCreate(ctx, "wan2", nil); return err })
	measure("Snapshot", func() error { _, err := sb.Snapshot(ctx, nil); return err })
	measure("Delete", func() error { return sb.Delete(ctx, nil) })
}
