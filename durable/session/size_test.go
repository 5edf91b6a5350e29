package session

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestCarriedStateIsBounded: what a session carries over continue-as-new is always below
// Temporal's limit for a payload, even with commands and keys that are six times as long in
// JSON.
func TestCarriedStateIsBounded(t *testing.T) {
	const payload = 2 << 20
	hash := strings.Repeat("0", 64)
	for name, text := range map[string]string{"plain": "x", "escaped": "<", "control": "\x01", "wide": "\u2028", "broken": "\xff"} {
		sizes := []int{1, MaxCommand, 100, 60 << 10}
		if !needs.Slow() {
			sizes = sizes[:2]
		}
		for _, size := range sizes {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				r := &run{state: &state{}, in: input{Policy: Policy{QueueLimit: 1_000_000}.withDefaults()}}
				script := strings.Repeat(text, size/len(text)+1)[:size]
				taken := 0
				for taken < queueBytes/(queued{Command: script}.size())-3 || r.acceptCommand(nil, commandUpdate{Command: script}) == nil {
					taken++
					r.Queue = append(r.Queue, queued{ID: fmt.Sprintf("cmd-%d", taken), Command: script})
					r.interrupts = append(r.interrupts, interrupt{fmt.Sprintf("cmd-%d", taken), 9}, interrupt{fmt.Sprintf("cmd-%d", taken), 9}, interrupt{"cmd-none", 9})
				}
				require.Positive(t, taken)
				for r.acceptCommand(nil, commandUpdate{Text: hash}) == nil { // the hash of a text in the store
					taken++
					r.Queue = append(r.Queue, queued{ID: fmt.Sprintf("cmd-%d", taken), Text: hash})
				}
				for i := range 2 * keepKeys {
					r.Keys = append(r.Keys[max(len(r.Keys)+1-keepKeys, 0):], keyed{shortenKey(fmt.Sprint(i, strings.Repeat(text, 190))), fmt.Sprintf("cmd-%d", 1_000_000+i)})
				}
				for n := 0; n == 0 || eventsSize(r.Events) < keepBytes; n++ {
					r.Events = append(r.Events, stored{Event: Event{Command: script, Type: TypeCommandQueued}})
				}
				for len(r.Events) > r.in.Policy.KeepEvents || eventsSize(r.Events) > keepBytes {
					n := pageLength(r.Events)
					data, err := json.Marshal(r.Events[:n])
					require.NoError(t, err)
					assert.Less(t, len(data), payload, "a page")
					r.Events = r.Events[n:]
				}
				for base := range 10_000 {
					r.Pages = append(r.Pages, 1<<30+base)
				}
				r.in.Options.Tags = map[string]string{"a": strings.Repeat("x", optionsBytes-600)}
				require.NoError(t, r.in.check())
				r.Sandbox = &durable.Sandbox{Options: r.in.Options}
				r.Interrupts = r.queuedInterrupts()
				r.in.State = r.state
				carried, err := converter.GetDefaultDataConverter().ToPayload(r.in)
				require.NoError(t, err)
				assert.Less(t, len(carried.GetData()), payload, "with %d commands", taken)
			})
		}
	}
}

// TestOptionsAreBounded: options that are too large to be carried over are refused at the
// start.
func TestOptionsAreBounded(t *testing.T) {
	_, err := New(nil, nil).Start(t.Context(), &StartOptions{Sandbox: &durable.Options{Tags: map[string]string{"a": strings.Repeat("<", optionsBytes/6)}}})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	require.ErrorContains(t, err, "bytes of JSON")
}

// TestPages: a viewer finds all events of a session with several stored pages, from any
// position.
func TestPages(t *testing.T) {
	r, a := &run{state: &state{}}, archive{memory{}}
	for page := range 10 {
		var events []stored
		for n := range page%3 + 1 {
			events = append(events, stored{Event: Event{Seq: r.Base + n}})
		}
		kept, err := a.put(t.Context(), "a", r.Base, events)
		require.NoError(t, err)
		require.True(t, kept)
		r.Pages = append(r.Pages, r.Base)
		r.Base += len(events)
	}
	for seq := range r.Base {
		events, err := a.get(t.Context(), "a", r.page(seq).Stored, seq)
		require.NoError(t, err)
		require.NotEmpty(t, events, "from %d", seq)
		require.Equal(t, seq, events[0].Event.Seq)
	}
	events, err := a.get(t.Context(), "a", r.Pages[len(r.Pages)-1], r.Base)
	require.NoError(t, err)
	assert.Empty(t, events)
}

// TestKeysStayKnown: a long key is recognized by its hash.
func TestKeysStayKnown(t *testing.T) {
	long := strings.Repeat("<", 200)
	r := &run{state: &state{Keys: []keyed{{shortenKey(long + "x"), "cmd-2"}, {"short", "cmd-3"}}}}
	for key, id := range map[string]string{long: "", long + "x": "cmd-2", "short": "cmd-3", "other": "", "": ""} {
		assert.Equal(t, id, r.commandOfKey(key), "%.10q", key)
	}
}
