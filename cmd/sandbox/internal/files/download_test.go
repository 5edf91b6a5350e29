package files

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// TestProgressLearnsTheTotal: a download starts before the size of the file is known, and
// shows the size once it is.
func TestProgressLearnsTheTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int64
		info, err := fstest.MapFS{"f": {Data: []byte("12345")}}.Stat("f")
		require.NoError(t, err)
		update := withTotal(func(p sandbox.Progress) { told = append(told, p.Total) }, func() (fs.FileInfo, error) { return info, nil })
		for range 2 {
			synctest.Wait()
			update(sandbox.Progress{Total: -1})
		}
		synctest.Wait()
		update(sandbox.Progress{Total: -1})
		assert.EqualValues(t, 5, told[2])
		assert.Nil(t, withTotal(nil, nil))
	})
}
