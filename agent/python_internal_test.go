package agent

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestForgedCellEnds: code that writes forged ends of a cell does not fill the memory or hide
// the real end.
func TestForgedCellEnds(t *testing.T) {
	t.Parallel()
	const end = "\n\x1emark"
	for name, c := range map[string]struct{ first, piece string }{
		"many in one piece":   {piece: end + "x\n"},
		"one that never ends": {first: end, piece: "xxxxxxx"},
	} {
		s, piece := &cellOutput{}, bytes.Repeat([]byte(c.piece), 4<<10)
		got := s.startCell("mark", newWindow(1000))
		_, _ = s.Write([]byte(c.first))
		longest := 0
		for range 30 {
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
