package limits_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox/internal/testkit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// longRecordEnv holds the address of the server for the process whose memory is
// measured, which is this test binary.
const longRecordEnv = "SANDBOX_TEST_LONG_RECORD"

// longText is the text that a long record repeats, plain and encoded as JSON.
const (
	longText    = "A line of output, with é and \"quotes\".\n"
	longEncoded = `A line of output, with é and \"quotes\".\n`
)

// TestLongRecordClient runs one command and reports the output received and its
// peak memory.
func TestLongRecordClient(t *testing.T) {
	url := os.Getenv(longRecordEnv)
	if url == "" {
		return
	}
	c, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: url, Credentials: auth.Static(auth.Credentials{Token: "any", TeamID: "team", ProjectID: "project"})})
	require.NoError(t, err)
	defer c.CloseIdleConnections()
	sb, err := c.Create(t.Context(), nil)
	require.NoError(t, err)
	stdout, stderr := sha256.New(), sha256.New()
	_, err = sb.RunCommand(t.Context(), "print", nil, &sandbox.CommandOptions{Stdout: stdout, Stderr: stderr})
	require.NoError(t, err)
	fmt.Printf("\nREPORT %x %x %f %f\n", stdout.Sum(nil), stderr.Sum(nil), ownedMB(), peakMB(t))
}

// ownedMB returns the memory that the Go runtime has obtained from the system
// so far. The peak of resident memory would include the program's text and the
// race detector's shadow memory.
func ownedMB() float64 {
	total := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(total)
	return float64(total[0].Value.Uint64()) / (1 << 20)
}

// TestLongRecord has a command print 1 GiB in one record, with its members in
// any order, to a client limited to 24 MB.
func TestLongRecord(t *testing.T) {
	t.Parallel()
	times := 1 << 30 / len(longText)
	if testing.Short() {
		times = 32 << 20 / len(longText)
	}
	sum := func(h hash.Hash, text string, times int) string {
		for range times {
			_, _ = io.WriteString(h, text)
		}
		return hex.EncodeToString(h.Sum(nil))
	}
	for _, test := range []struct{ name, head, tail string }{
		{"data first", `{"data":"`, `","stream":"stdout"}` + "\n"},
		{"stream first", `{"stream":"stdout","data":"`, `"}` + "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/cmd") {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"sandbox":`+testkit.CannedSandbox+`,"session":`+testkit.CannedSession+`,"routes":[]}`, 0)
					return
				}
				w.Header().Set("Content-Type", "application/x-ndjson")
				fmt.Fprintf(w, testkit.CannedCommand+"\n"+`{"data":"before\n","stream":"stderr"}`+"\n", "null")
				_, _ = io.WriteString(w, test.head)
				const many = 1000
				block := strings.Repeat(longEncoded, many)
				for left := times; left > 0; left -= many {
					_, _ = io.WriteString(w, block[:min(left, many)*len(longEncoded)])
				}
				_, _ = io.WriteString(w, test.tail)
				fmt.Fprintf(w, `{"data":"after\n","stream":"stderr"}`+"\n"+testkit.CannedCommand+"\n", "0")
			}))
			defer srv.Close()
			client := exec.Command(os.Args[0], "-test.run=^TestLongRecordClient$")
			client.Env = append(os.Environ(), longRecordEnv+"="+srv.URL, "TMPDIR="+t.TempDir())
			out, err := client.CombinedOutput()
			require.NoError(t, err, string(out))
			var stdout, stderr string
			var owned, peak float64
			_, report, _ := strings.Cut(string(out), "REPORT ")
			_, err = fmt.Sscan(report, &stdout, &stderr, &owned, &peak)
			require.NoError(t, err, string(out))
			assert.Equal(t, sum(sha256.New(), longText, times), stdout)
			assert.Equal(t, sum(sha256.New(), "before\nafter\n", 1), stderr)
			t.Logf("memory: %.1f MB, at most %.1f MB resident", owned, peak)
			assert.Less(t, owned, 24.0)
		})
	}
}
