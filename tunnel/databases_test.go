package tunnel

import (
	"bytes"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// databases are database servers with client scripts. The argument of a script is a port of
// 127.0.0.1.
var databases = []struct {
	name   string
	needs  []string
	begin  string // start of each script
	server string // runs the server in the foreground
	ready  string // waits for the server
	// clients are scripts, each with the position of the requests per second in its
	// output. The output of a script without one is the same each time.
	clients []struct{ script, figure string }
}{
	{
		name: "postgres", needs: []string{"pgbench", "psql", "initdb"},
		// Debian installs the server outside PATH.
		begin:  `set -e; export PGHOST=127.0.0.1 PGPORT=$1 PGUSER=test PGDATABASE=postgres PATH="$PATH:$(echo /usr/lib/postgresql/*/bin)"` + "\n",
		server: `initdb -D data -U test -A trust -E UTF8 --locale=C.UTF-8 --no-sync >&2; exec postgres -D data -k "$PWD" -h 127.0.0.1 -p $1 -F`,
		ready:  `until pg_isready -q; do sleep 0.1; done; pgbench -q -i`,
		clients: []struct{ script, figure string }{
			{`pgbench -n -S -c 8 -t 2000`, `tps = (\d+)`},
			{`pgbench -n -S -c 8 -t 20 -C`, `tps = (\d+)`},
			{`psql -Atc "select n, md5(n::text) from generate_series(1, 300000) n" | cksum`, ""},
		},
	},
	{
		name: "redis", needs: []string{"redis-server", "redis-benchmark", "redis-cli"},
		begin:  "set -e\n",
		server: `exec redis-server --port $1 --bind 127.0.0.1 --save "" --appendonly no`,
		ready:  `until redis-cli -p $1 ping; do sleep 0.1; done; head -c 7000000 /dev/zero | tr '\0' x | redis-cli -p $1 -x set large`,
		clients: []struct{ script, figure string }{
			{`redis-benchmark -p $1 -c 50 -n 50000 -t get --csv`, `"GET","(\d+)`},
			{`redis-benchmark -p $1 -c 50 -n 200000 -P 16 -t set --csv`, `"SET","(\d+)`},
			{`redis-cli -p $1 get large | cksum`, ""},
		},
	},
}

// TestDatabases runs database clients and benchmarks in the sandbox and here, through a
// tunnel. None fails, and their output is the same. It logs the requests per second of
// both.
func TestDatabases(t *testing.T) {
	needs.Long(t, "runs the benchmarks of databases")
	for _, db := range databases {
		t.Run(db.name, func(t *testing.T) {
			needs.Programs(t, append(db.needs, "stty", "python3")...)
			_, sb := testkit.LightStart(t, nil)
			port := needs.Port(t) // the sandbox may share this machine's ports
			script := func(text string, port int) []string {
				return []string{"-c", db.begin + text, "sh", strconv.Itoa(port)}
			}
			runInSandbox := func(text string) string {
				cmd := sb.CommandContext(t.Context(), "sh", script(text, port)...)
				var failure bytes.Buffer
				cmd.Stderr = &failure
				out, err := cmd.Output()
				require.NoError(t, err, "%s\n%s", out, &failure)
				return string(out)
			}
			_, err := sb.StartCommand(t.Context(), "sh", script(db.server, port), nil)
			require.NoError(t, err)
			runInSandbox(db.ready)

			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var forwarding sync.WaitGroup
			defer forwarding.Wait()
			defer l.Close()
			forwarding.Go(func() { _ = Forward(t.Context(), l, sb, port, nil) }) // ends with l
			runHere := func(text string) string {
				cmd := exec.CommandContext(t.Context(), "sh", script(text, l.Addr().(*net.TCPAddr).Port)...)
				var failure bytes.Buffer
				cmd.Stderr, cmd.Dir = &failure, t.TempDir()
				out, err := cmd.Output()
				require.NoError(t, err, "%s\n%s", out, &failure)
				return string(out)
			}
			for _, client := range db.clients {
				direct, through := runInSandbox(client.script), runHere(client.script)
				if client.figure == "" {
					assert.Equal(t, direct, through, client.script)
					continue
				}
				figure := regexp.MustCompile(client.figure)
				require.Regexp(t, figure, direct)
				require.Regexp(t, figure, through)
				t.Logf("%s: %s/s on loopback, %s/s through a tunnel", client.script, figure.FindStringSubmatch(direct)[1], figure.FindStringSubmatch(through)[1])
			}
		})
	}
}
