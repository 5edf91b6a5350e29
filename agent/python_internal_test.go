package agent

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestFalseEndsOfCells: code that knows its mark and writes false ends fills no memory,
// and does not hide the real end.
func TestFalseEndsOfCells(t *testing.T) {
	t.Parallel()
	const end = "\n\x1emark"
	for name, c := range map[string]struct{ first, piece string }{
		"many in one piece":   {piece: end + "x\n"},
		"one that never ends": {first: end, piece: "xxxxxxx"},
	} {
		s, piece := &cells{}, bytes.Repeat([]byte(c.piece), 4<<10)
		got := s.begin("mark", newWindow(1000))
		_, _ = s.Write([]byte(c.first))
		longest := 0
		for range 100 {
			_, _ = s.Write(piece)
			longest = max(longest, len(s.pending))
		}
		assert.LessOrEqual(t, longest, 64<<10+len(piece), name)
		_, _ = s.Write([]byte(end + `{"ok":true,"files":["made"]}` + "\n"))
		select {
		case e := <-got:
			assert.Equal(t, cellEnd{OK: true, Files: []string{"made"}}, e, name)
		default:
			assert.Fail(t, "the real end is not seen", name)
		}
	}
}
