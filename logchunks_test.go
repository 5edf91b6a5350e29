package sandbox_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// The chunks are the lines, for the time of one turn of the loop.
func TestLogChunks(t *testing.T) {
	log := ""
	for i := range 500 {
		log += fmt.Sprintf(`{"stream":"stdout","data":"line %d\n"}`+"\n"+`{"stream":"stderr","data":"\u00e9 \"%d\""}`+"\n", i, i)
	}
	command := fmt.Sprintf(cannedCommand, "0")
	sb := cannedBox(t, cannedLog(command, log))
	cmd, err := sb.GetCommand(t.Context(), "cmd_1")
	require.NoError(t, err)
	var lines, chunks []sandbox.LogLine
	for line, err := range cmd.Logs(t.Context()) {
		require.NoError(t, err)
		lines = append(lines, line)
	}
	for chunk, err := range cmd.LogChunks(t.Context()) {
		require.NoError(t, err)
		chunks = append(chunks, sandbox.LogLine{Stream: chunk.Stream, Data: string(chunk.Data)})
		clear(chunk.Data) // the loop may change it
	}
	require.Len(t, lines, 1000)
	assert.Equal(t, lines, chunks)
	assert.Equal(t, sandbox.LogLine{Stream: sandbox.Stderr, Data: `é "499"`}, lines[999])
}

func TestLogChunksAllocateNothing(t *testing.T) {
	allocs := func(lines int) float64 {
		log := strings.Repeat(`{"stream":"stdout","data":"some text, é\n"}`+"\n", lines)
		sb := cannedBox(t, cannedLog(fmt.Sprintf(cannedCommand, "0"), log))
		cmd, err := sb.GetCommand(t.Context(), "cmd_1")
		require.NoError(t, err)
		return testing.AllocsPerRun(5, func() {
			n := 0
			for range cmd.LogChunks(t.Context()) {
				n++
			}
			require.Equal(t, lines, n)
		})
	}
	assert.Less(t, allocs(10_000), allocs(10)+100, "whatever the number of lines")
}
