package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
)

const creationMark = "go-sandbox-creation"

// tagAPI is an API with at most one sandbox, and only the sandbox's tags can change. It
// takes some time to respond.
type tagAPI struct {
	mu      sync.Mutex
	exists  bool
	tags    map[string]string
	created int
	deleted int
	marks   []string // all values that the tag creationMark has had
}

func (a *tagAPI) serve(req *http.Request) (*http.Response, error) {
	time.Sleep(10 * time.Millisecond)
	var body struct{ Tags map[string]string }
	if req.Body != nil {
		text, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if len(text) > 0 && json.Unmarshal(text, &body) != nil {
			return nil, fmt.Errorf("%q", text)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/sandboxes"):
		if a.exists {
			return canned.JSON(409, `{"error":{"code":"conflict","message":"exists"}}`), nil
		}
		a.exists = true
		a.created++
		a.set(body.Tags)
	case !a.exists:
		return canned.JSON(404, `{"error":{"code":"not_found","message":"not found"}}`), nil
	case req.Method == http.MethodPatch:
		a.set(body.Tags)
	case req.Method == http.MethodDelete:
		a.exists = false
		a.deleted++
	}
	tags, err := json.Marshal(a.tags)
	return canned.JSON(200, fmt.Sprintf(`{"sandbox":{"name":"box","status":"running","currentSessionId":"s%d","createdAt":%[1]d,"tags":%s},`+
		`"session":{"id":"s%[1]d","status":"running","createdAt":%[1]d},"routes":[]}`, a.created, tags)), err
}

func (a *tagAPI) set(tags map[string]string) {
	if mark := tags[creationMark]; mark != "" && mark != a.tags[creationMark] {
		a.marks = append(a.marks, mark)
	}
	a.tags = tags
}

// state returns the tags, and the number of values that the tag creationMark has had.
func (a *tagAPI) state() (tags map[string]string, values int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.tags), len(a.marks)
}

// abandon creates a sandbox like a process that dies during its OnCreate.
func (a *tagAPI) abandon(tags map[string]string) {
	a.exists, a.created = true, 1
	a.set(tags)
}

// change sets a tag, like another client.
func (a *tagAPI) change(name, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	tags := maps.Clone(a.tags)
	tags[name] = value
	a.set(tags)
}

func getOrCreate(ctx context.Context, c *sandbox.Client, onCreate sandbox.Hook) (*sandbox.Sandbox, error) {
	return c.GetOrCreate(ctx, "box", &sandbox.CreateOptions{OnCreate: onCreate, Tags: map[string]string{"mine": "1"}})
}

// TestOnCreateChangesItsTag: while OnCreate runs, the client changes the value of its tag
// once a minute, and keeps other tags. A waiting call waits until OnCreate returns.
func TestOnCreateChangesItsTag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &tagAPI{}
		creator, waiter := canned.API(api.serve).Client(t), canned.API(api.serve).Client(t)
		var group sync.WaitGroup
		group.Go(func() {
			sb, err := getOrCreate(t.Context(), creator, func(ctx context.Context, sb *sandbox.Sandbox) error {
				time.Sleep(30 * time.Second)
				api.change("theirs", "2")
				time.Sleep(time.Hour)
				return ctx.Err()
			})
			if assert.NoError(t, err) {
				assert.Equal(t, map[string]string{"mine": "1", "theirs": "2"}, sb.Info().Tags)
			}
		})
		time.Sleep(time.Second)
		begin := time.Now()
		group.Go(func() {
			_, err := getOrCreate(t.Context(), waiter, func(context.Context, *sandbox.Sandbox) error {
				return errors.New("OnCreate runs twice")
			})
			assert.NoError(t, err)
			assert.Greater(t, time.Since(begin), time.Hour)
			assert.Less(t, time.Since(begin), time.Hour+time.Minute)
		})
		time.Sleep(10*time.Minute + 30*time.Second)
		tags, values := api.state()
		assert.Equal(t, 11, values, "the first value and ten changes")
		delete(tags, creationMark)
		assert.Equal(t, map[string]string{"mine": "1", "theirs": "2"}, tags)
		group.Wait()
		tags, _ = api.state()
		assert.Equal(t, map[string]string{"mine": "1", "theirs": "2"}, tags)
		assert.Zero(t, api.deleted)
	})
}

// TestOnCreateTakenOver: if the tag has not changed for three minutes, a waiting call takes
// over: it runs OnCreate for the same sandbox, and keeps other tags.
func TestOnCreateTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &tagAPI{}
		api.abandon(map[string]string{creationMark: "once-DEAD-7", "theirs": "2"})
		begin, runs := time.Now(), 0
		_, err := getOrCreate(t.Context(), canned.API(api.serve).Client(t), func(context.Context, *sandbox.Sandbox) error {
			runs++
			assert.Greater(t, time.Since(begin), 3*time.Minute)
			assert.Less(t, time.Since(begin), 3*time.Minute+20*time.Second)
			return nil
		})
		require.NoError(t, err)
		assert.Equal(t, 1, runs)
		assert.Equal(t, map[string]string{"theirs": "2"}, api.tags)
		assert.Equal(t, []int{1, 0}, []int{api.created, api.deleted})
	})
}

// TestOnCreateTakenOverByOne: of several calls that wait for a dead process, one runs
// OnCreate, and the others wait for it.
func TestOnCreateTakenOverByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &tagAPI{}
		api.abandon(map[string]string{creationMark: "once-DEAD"})
		var group sync.WaitGroup
		var mu sync.Mutex
		runs, over := 0, false
		for range 4 {
			group.Go(func() {
				_, err := getOrCreate(t.Context(), canned.API(api.serve).Client(t), func(context.Context, *sandbox.Sandbox) error {
					mu.Lock()
					runs++
					mu.Unlock()
					time.Sleep(20 * time.Minute)
					mu.Lock()
					over = true
					mu.Unlock()
					return nil
				})
				assert.NoError(t, err)
				mu.Lock()
				assert.True(t, over)
				mu.Unlock()
			})
		}
		group.Wait()
		assert.Equal(t, 1, runs)
		assert.Empty(t, api.tags)
		assert.Zero(t, api.deleted)
	})
}

// TestOnCreateFailsAfterTakeOver: if OnCreate fails in a call that took over, the sandbox
// is not deleted, and the next call runs OnCreate again.
func TestOnCreateFailsAfterTakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &tagAPI{}
		api.abandon(map[string]string{creationMark: "once-DEAD"})
		c := canned.API(api.serve).Client(t)
		broken := errors.New("no licence")
		_, err := getOrCreate(t.Context(), c, func(context.Context, *sandbox.Sandbox) error { return broken })
		require.ErrorIs(t, err, broken)
		assert.Zero(t, api.deleted)
		runs := 0
		_, err = getOrCreate(t.Context(), c, func(context.Context, *sandbox.Sandbox) error { runs++; return nil })
		require.NoError(t, err)
		assert.Equal(t, 1, runs)
		assert.Empty(t, api.tags)
	})
}

// TestOnCreateStopped: if another process has taken over, the client cancels the context
// of its OnCreate, does not delete the sandbox, and waits for the other process.
func TestOnCreateStopped(t *testing.T) {
	t.Parallel()
	broken := errors.New("no licence")
	for name, row := range map[string]struct {
		lasts time.Duration // until the hook returns; the other process takes over after 90 s
		fails error
		want  error
	}{
		"stopped":                    {time.Hour, nil, nil},
		"stopped, and fails":         {time.Hour, broken, nil},
		"succeeds before it notices": {95 * time.Second, nil, nil},
		"fails before it notices":    {95 * time.Second, broken, broken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := &tagAPI{}
				begin := time.Now()
				var group sync.WaitGroup
				group.Go(func() {
					time.Sleep(90 * time.Second)
					for n := range 5 {
						api.change(creationMark, fmt.Sprint("once-OTHER-", n))
						time.Sleep(time.Minute)
					}
					api.mu.Lock()
					defer api.mu.Unlock()
					api.set(map[string]string{"theirs": "2"})
				})
				_, err := getOrCreate(t.Context(), canned.API(api.serve).Client(t), func(ctx context.Context, _ *sandbox.Sandbox) error {
					select {
					case <-time.After(row.lasts):
					case <-ctx.Done():
						assert.Less(t, time.Since(begin), 150*time.Second)
						assert.NoError(t, t.Context().Err())
					}
					return row.fails
				})
				if row.want == nil {
					require.NoError(t, err)
					assert.Greater(t, time.Since(begin), 390*time.Second, "the call did not wait for the other process's OnCreate")
				}
				require.ErrorIs(t, err, row.want)
				group.Wait()
				assert.Equal(t, []int{1, 0}, []int{api.created, api.deleted})
				assert.Equal(t, map[string]string{"theirs": "2"}, api.tags)
			})
		})
	}
}

// TestOnCreateWithoutItsTag: another client removes the tag while OnCreate runs. OnCreate
// continues, and its failure does not delete the sandbox.
func TestOnCreateWithoutItsTag(t *testing.T) {
	t.Parallel()
	for _, fails := range []error{nil, errors.New("no licence")} {
		synctest.Test(t, func(t *testing.T) {
			api := &tagAPI{}
			_, err := getOrCreate(t.Context(), canned.API(api.serve).Client(t), func(ctx context.Context, _ *sandbox.Sandbox) error {
				api.mu.Lock()
				api.set(map[string]string{"theirs": "2"})
				api.mu.Unlock()
				time.Sleep(10 * time.Minute)
				return errors.Join(ctx.Err(), fails)
			})
			require.ErrorIs(t, err, fails)
			assert.Equal(t, map[string]string{"theirs": "2"}, api.tags)
			assert.Zero(t, api.deleted)
		})
	}
}
