package session

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestSharedLog: all viewers of a running command share the requests of one, whenever they
// come and wherever they begin, and each gets each byte once. A viewer that needs older
// bytes than are kept reads the log itself.
func TestSharedLog(t *testing.T) {
	for name, lines := range map[string]int{"all is kept": 1000, "some is kept": 15_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			emulator := sandboxtest.New(t, nil)
			sb, err := emulator.Client().Create(t.Context(), nil)
			require.NoError(t, err)
			cmd, err := sb.StartCommand(t.Context(), "bash", []string{"-c", fmt.Sprintf(
				`seq -f %%099.0f 0 %d; until [ -e gate ]; do sleep 0.05; done; seq -f %%099.0f %d %d`,
				lines-1, lines, 2*lines-1)}, nil)
			require.NoError(t, err)
			handle, err := json.Marshal(cmd)
			require.NoError(t, err)
			var want strings.Builder
			for i := range 2 * lines {
				fmt.Fprintf(&want, "%099d\n", i)
			}

			temporal := newCluster()
			c := New(temporal, &Options{Sandbox: emulator.Client()})
			temporal.knows(stored{Event: Event{Type: TypeCommandStart, ID: "cmd-1"}, Decision: 3, Handle: handle})
			temporal.commits(3)
			var viewers sync.WaitGroup
			var mu sync.Mutex
			seen := 0 // by all, before the gate
			view := func(from int64) {
				viewers.Go(func() {
					var got strings.Builder
					for e, err := range c.Events(t.Context(), "a", Cursor{Byte: from + 1}) {
						if !assert.NoError(t, err) {
							return
						}
						if got.WriteString(e.Data); e.Type == TypeCommandOutput && got.Len() == want.Len()/2-int(from) {
							mu.Lock()
							seen++
							mu.Unlock()
						}
						if e.Type == TypeCommandEnd {
							break
						}
					}
					assert.True(t, got.String() == want.String()[from:], "%d bytes from %d on", got.Len(), from)
				})
			}
			have := func(n int) {
				t.Helper()
				require.Eventually(t, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return seen == n
				}, testkit.Patience, 10*time.Millisecond)
			}
			for range 5 {
				view(0)
			}
			have(5)
			late := []int64{0, 77, int64(want.Len()/2 - 150), int64(want.Len()/2 - 1)} // in the midst of a piece
			for _, from := range late {
				view(from)
			}
			have(5 + len(late))
			require.NoError(t, sb.FS().WriteFile(t.Context(), "gate", nil, 0o600))
			temporal.knows(stored{Event: Event{Type: TypeCommandStart, ID: "cmd-1"}, Decision: 3, Handle: handle}, of(7, Event{Type: TypeCommandEnd, ID: "cmd-1"}))
			_, err = cmd.Wait(t.Context())
			require.NoError(t, err)
			temporal.commits(7)
			viewers.Wait()
			logs := 0
			for _, r := range emulator.Requests() {
				if r.Operation == sandboxtest.CommandLogs {
					logs++
				}
			}
			if want.Len() < keptLog {
				assert.LessOrEqual(t, logs, 2, "a log, and its confirmation")
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			assert.Empty(t, c.logs)
		})
	}
}

// TestSharedLogEnds: the shared reader ends some time after its last viewer. An earlier
// viewer uses it; a later one starts another.
func TestSharedLogEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var readers, ended atomic.Int32
		chunks := func(ctx context.Context) iter.Seq2[sandbox.LogChunk, error] {
			return func(yield func(sandbox.LogChunk, error) bool) {
				readers.Add(1)
				yield(sandbox.LogChunk{Data: []byte("up")}, nil)
				<-ctx.Done()
				ended.Add(1)
			}
		}
		c := New(nil, nil)
		for want := int32(1); want <= 2; want++ {
			for range 3 {
				_, first := c.liveLog("a", chunks)
				l, second := c.liveLog("a", chunks)
				synctest.Wait()
				pieces, _, _, _, _ := c.logFrom(l, 0)
				assert.Len(t, pieces, 1)
				first()
				time.Sleep(2 * keepLog)
				second()
				time.Sleep(keepLog - 1)
			}
			synctest.Wait()
			assert.Equal(t, want, readers.Load())
			assert.Equal(t, want-1, ended.Load())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.Equal(t, want, ended.Load())
			assert.Empty(t, c.logs)
		}
	})
}
