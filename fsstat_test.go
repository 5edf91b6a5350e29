package sandbox

import (
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	st, err := parseStat("4294967296|81a4|1000|1001|1700000000.5|1700000000.123456789|1700000002|-|1|99|2049|4096|8")
	require.NoError(t, err)
	assert.Equal(t, &FileStat{
		Size: 1 << 32, RawMode: 0o100644, UID: 1000, GID: 1001,
		AccessTime: time.Unix(1700000000, 5e8), ModTime: time.Unix(1700000000, 123456789), ChangeTime: time.Unix(1700000002, 0),
		Links: 1, Inode: 99, Device: 2049, BlockSize: 4096, Blocks: 8,
	}, st)

	for _, bad := range []string{
		"", "1|2|3", "x|81a4|0|0|0|0|0|0|1|1|1|1|1", "-1|81a4|0|0|0|0|0|0|1|1|1|1|1", "1|zz|0|0|0|0|0|0|1|1|1|1|1",
		"1|81a4|-1|0|0|0|0|0|1|1|1|1|1", "1|81a4|0|0|soon|0|0|0|1|1|1|1|1", "1|81a4|0|0|1.x|0|0|0|1|1|1|1|1",
		"1|81a4|0|0|0|0|0|0|1|1|1|1|1|extra",
	} {
		_, err := parseStat(bad)
		assert.ErrorIs(t, err, errOutput, bad)
	}
}

func TestFileMode(t *testing.T) {
	for raw, want := range map[uint32]fs.FileMode{
		0x81a4: 0o644,
		0x41ed: fs.ModeDir | 0o755,
		0xa1ff: fs.ModeSymlink | 0o777,
		0x61b0: fs.ModeDevice | 0o660,
		0x2190: fs.ModeDevice | fs.ModeCharDevice | 0o620,
		0x11a4: fs.ModeNamedPipe | 0o644,
		0xc1ed: fs.ModeSocket | 0o755,
		0x89ed: fs.ModeSetuid | 0o755,
		0x85ed: fs.ModeSetgid | 0o755,
		0x43ff: fs.ModeDir | fs.ModeSticky | 0o777,
		0:      fs.ModeIrregular,
	} {
		assert.Equal(t, want, fileMode(raw), "%x", raw)
		assert.Equal(t, raw&0o7777, permBits(want))
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42|81a4|1000|1001|1700000000.5|1700000000.125|1700000002|1700000003|1|99|2049|4096|8")
	f.Add("42|81a4|1000|1001|-1.5|1700000001|0|-|1|99|2049|4096|8")
	f.Add("||||||||||||")
	f.Fuzz(func(t *testing.T, s string) {
		st, err := parseStat(s)
		if err != nil {
			return
		}
		info := &fileInfo{name: "x", stat: *st}
		if info.Size() < 0 || info.IsDir() != info.Mode().IsDir() || permBits(info.Mode()) != st.RawMode&0o7777 {
			t.Fatalf("%q: %+v", s, st)
		}
		_ = info.String()
	})
}
