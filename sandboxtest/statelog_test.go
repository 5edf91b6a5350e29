package sandboxtest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// changed gives the file of a state with several lines.
func changed(t *testing.T) []byte {
	t.Helper()
	opts := &sandboxtest.Options{Mode: sandboxtest.Folder, Dir: t.TempDir()}
	_, c := start(t, opts)
	c.create(obj{"name": "one"})
	c.drive("disk", nil, 201)
	c.call("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"timeout": 600_000}, 200, nil)
	data, err := os.ReadFile(filepath.Join(opts.Dir, "state.json"))
	require.NoError(t, err)
	require.Greater(t, bytes.Count(data, []byte("\n")), 3)
	return data
}

// TestHalfALine: a file that ends within a line, as after the death of the
// process that was writing it, says what it said before that line; one that
// was changed in any other way is refused.
func TestHalfALine(t *testing.T) {
	t.Parallel()
	data := changed(t)
	name := filepath.Join(t.TempDir(), "state.json")
	read := func(data []byte) (string, error) {
		t.Helper()
		require.NoError(t, os.WriteFile(name, data, 0o600))
		return sandboxtest.ReadState(name)
	}
	last := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
	before, err := read(data[:last])
	require.NoError(t, err)
	after, err := read(data)
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	for n := last + 1; n < len(data); n++ {
		got, err := read(data[:n])
		if n == len(data)-1 { // only the end of the line is missing
			require.NoError(t, err)
			assert.Equal(t, after, got)
		} else {
			require.NoError(t, err, "%d of %d", n, len(data))
			require.Equal(t, before, got, "%d of %d", n, len(data))
		}
	}
	first := bytes.IndexByte(data, '\n')
	for _, n := range []int{0, 1, first / 2, first - 1} {
		_, err := read(data[:n])
		require.ErrorContains(t, err, "damaged", "%d", n)
	}
	// Any one bit. What stands between the parts of a line may say the same in
	// another way.
	for i := range data {
		for bit := range 8 {
			if (i*8+bit)%23 != 0 && i < last { // a sample of the older lines
				continue
			}
			flipped := slices.Clone(data)
			flipped[i] ^= 1 << bit
			got, err := read(flipped)
			if err == nil {
				require.Equal(t, after, got, "byte %d, bit %d", i, bit)
			}
		}
	}
	// Lines that were taken out, or that are in another order.
	lines := bytes.SplitAfter(data, []byte("\n"))
	_, err = read(bytes.Join(lines[1:], nil))
	require.ErrorContains(t, err, "line 1: it is out of order")
	_, err = read(append(slices.Clone(lines[0]), data...))
	require.ErrorContains(t, err, "line 2: it is out of order")
}

// TestOldFormatIsReadOnce: a state that was one line is taken up, and has
// become one of many.
func TestOldFormatIsReadOnce(t *testing.T) {
	t.Parallel()
	opts := &sandboxtest.Options{Mode: sandboxtest.Folder, Dir: t.TempDir()}
	snapshot := kept(t, opts)
	name := filepath.Join(opts.Dir, "state.json")
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(data, []byte("\n")), "closing leaves one line")
	old := bytes.Replace(data, []byte(`{"version":4,`), []byte(`{"version":3,`), 1)
	require.NotEqual(t, data, old)
	require.NoError(t, os.WriteFile(name, old, 0o600))
	isKept(t, opts, snapshot)
	data, err = os.ReadFile(name)
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(data, []byte(`{"version":4,`)))
}

// costBoxesEnv is the number of other sandboxes while TestChangesCostWhatTheyChange
// measures.
const costBoxesEnv = "SANDBOXTEST_COST_BOXES"

// TestChangesCostWhatTheyChange: what is written for a change does not grow with
// the number of sandboxes. To measure the time with many:
//
//	SANDBOXTEST_UNCHECKED=1 SANDBOXTEST_COST_BOXES=1000 go test -run TestChangesCostWhatTheyChange -v ./sandboxtest
func TestChangesCostWhatTheyChange(t *testing.T) {
	boxes := 30
	if text := os.Getenv(costBoxesEnv); text != "" {
		var err error
		boxes, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	opts := &sandboxtest.Options{Mode: sandboxtest.Folder, Dir: t.TempDir()}
	_, c := start(t, opts)
	c.create(obj{"name": "one"})
	size := func() int64 {
		info, err := os.Stat(filepath.Join(opts.Dir, "state.json"))
		require.NoError(t, err)
		return info.Size()
	}
	const times = 20
	patch := func(boxes int) {
		began := time.Now()
		for i := range times {
			c.call("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"timeout": 600_000 + i}, 200, nil)
		}
		t.Logf("with %d sandboxes %d times PATCH take %v", boxes, times, time.Since(began))
	}
	length := size()
	patch(1)
	alone := (size() - length) / times
	for i := range boxes {
		c.create(obj{"name": fmt.Sprint("more-", i)})
	}
	length = size()
	patch(boxes + 1)
	beside := (size() - length) / times
	t.Logf("%d bytes alone, %d beside others", alone, beside)
	assert.Positive(t, alone)
	assert.Less(t, beside, alone+2048) // a change that something else makes meanwhile comes with it
}

// TestLongFilesAreWrittenAnew: the file does not grow for ever.
func TestLongFilesAreWrittenAnew(t *testing.T) {
	t.Parallel()
	opts := &sandboxtest.Options{Mode: sandboxtest.Folder, Dir: t.TempDir()}
	srv, c := start(t, opts)
	c.create(obj{"name": "one"})
	env := obj{"LONG": string(bytes.Repeat([]byte("x"), 4000))}
	const changes = 290
	largest, size := int64(0), int64(0)
	for i := range changes { // 1.2 MB of lines
		env["N"] = fmt.Sprint(i)
		c.call("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"env": env}, 200, nil)
		info, err := os.Stat(filepath.Join(opts.Dir, "state.json"))
		require.NoError(t, err)
		size = info.Size()
		largest = max(largest, size)
	}
	assert.Less(t, largest, int64(1<<20+64<<10))
	assert.Less(t, size, largest/2, "it was not written anew")
	require.NoError(t, srv.Close())
	_, c = start(t, opts)
	assert.Equal(t, fmt.Sprintln(changes-1), c.sh(c.get("one", "&resume=true", 200).Session.ID, "echo $N"))
}
