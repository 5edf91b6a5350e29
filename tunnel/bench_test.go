package tunnel

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/rawshell"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// pump is a server that sends or receives as many bytes as the first line of a connection
// says.
const pump = `
import socket, threading
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True)
block = bytes(1 << 18)
def serve(c):
    f = c.makefile("rb", 0)
    what, n = f.readline().split()
    n = int(n)
    if what == b"down":
        while n: n -= c.send(block[:n])
    else:
        while n: n -= len(c.recv(1 << 18))
        c.sendall(b".")
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

// BenchmarkForward compares the throughput of a forwarded port with that of a bare
// terminal, which is its upper limit, and of a file transfer. It moves 64 MiB, without
// latency and with a round trip of 30 ms.
func BenchmarkForward(b *testing.B) {
	needs.Programs(b, "stty", "python3")
	for _, helper := range interpreters {
		for _, rtt := range []time.Duration{0, 30 * time.Millisecond} {
			for _, way := range []string{"down", "up"} {
				b.Run(fmt.Sprintf("%s/rtt=%v/%s", helper.name, rtt, way), func(b *testing.B) {
					needs.Programs(b, helper.name)
					benchmarkForward(b, helper.helpers, rtt, way)
				})
			}
		}
	}
}

func benchmarkForward(b *testing.B, h helpers, rtt time.Duration, way string) {
	const size = 64 << 20
	srv := sandboxtest.New(b, nil)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil || rtt == 0 {
			return c, err
		}
		return withLatency(c, rtt/2), nil
	}}
	defer transport.CloseIdleConnections()
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: srv.URL, Credentials: testkit.Credentials(srv), HTTPClient: &http.Client{Transport: transport},
	})
	require.NoError(b, err)
	sb, err := client.Create(b.Context(), testkit.Lasting(nil))
	require.NoError(b, err)
	port := startServer(b, sb, "python3", "-c", pump)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	var forwarding sync.WaitGroup
	defer forwarding.Wait()
	defer cancel()
	forwarding.Go(func() {
		_ = forward(ctx, l, func(ctx context.Context) (*Conn, error) { return dial(ctx, sb, port, h) }, ForwardOptions{})
	})
	require.NoError(b, sb.FS().WriteFile(ctx, "file", make([]byte, size), 0o644))

	connect := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(b, err)
		_, err = fmt.Fprintln(c, way, size)
		require.NoError(b, err)
		return c
	}
	terminal := func(script string) *rawshell.Stream {
		s, err := rawshell.Open(ctx, sb, "sh", rawshell.Raw+rawshell.Greet+fmt.Sprintf(script, size))
		require.NoError(b, err)
		return s
	}
	block := make([]byte, 256<<10)
	fill := func(w io.Writer) {
		for range size / len(block) {
			_, err := w.Write(block)
			require.NoError(b, err)
		}
	}
	drain := func(r io.Reader) {
		n, err := io.Copy(io.Discard, r)
		require.NoError(b, err)
		require.EqualValues(b, size, n)
	}
	awaitByte := func(c io.Reader) {
		_, err := io.ReadFull(c, make([]byte, 1))
		require.NoError(b, err)
	}
	ways := map[string]struct{ tunnel, terminal, file func() }{
		"down": {
			tunnel:   func() { c := connect(); defer c.Close(); drain(c) },
			terminal: func() { s := terminal("head -c %d /dev/zero"); defer s.Close(); drain(s) },
			file: func() {
				f, err := sb.FS().Open(ctx, "file", nil)
				require.NoError(b, err)
				defer f.Close()
				drain(f)
			},
		},
		"up": {
			tunnel:   func() { c := connect(); defer c.Close(); fill(c); awaitByte(c) },
			terminal: func() { s := terminal("head -c %d >/dev/null; printf ."); defer s.Close(); fill(s); awaitByte(s) },
			file: func() {
				f, err := sb.FS().Create(ctx, "file", nil)
				require.NoError(b, err)
				fill(f)
				require.NoError(b, f.Close())
			},
		},
	}
	var took [3]time.Duration
	for b.Loop() {
		for i, move := range []func(){ways[way].tunnel, ways[way].terminal, ways[way].file} {
			began := time.Now()
			move()
			took[i] += time.Since(began)
		}
	}
	for i, name := range []string{"tunnel", "terminal", "file"} {
		b.ReportMetric(float64(size)*float64(b.N)/1e6/took[i].Seconds(), name+"-MB/s")
	}
	b.ReportMetric(0, "ns/op")
}

// withLatency delays the data of a connection in each direction.
func withLatency(near net.Conn, delay time.Duration) net.Conn {
	here, there := net.Pipe()
	pass := func(dst, src net.Conn) {
		type piece struct {
			data []byte
			at   time.Time
		}
		line := make(chan piece, 4096)
		go func() {
			defer close(line)
			for {
				data := make([]byte, 64<<10)
				n, err := src.Read(data)
				if err != nil {
					return
				}
				line <- piece{data[:n], time.Now().Add(delay)}
			}
		}()
		for p := range line {
			<-time.After(time.Until(p.at))
			if _, err := dst.Write(p.data); err != nil {
				break
			}
		}
		_ = dst.Close()
		_ = src.Close()
		for range line { //nolint:revive // the reader ends
		}
	}
	go pass(near, there)
	go pass(there, near)
	return here
}
