package units_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/tarball"
)

// blockSize is the block size of the archive's compressor.
const blockSize = 512 << 10

func seq(entries ...tarball.Entry) iter.Seq2[tarball.Entry, error] {
	return func(yield func(tarball.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func file(name string, content []byte) tarball.Entry {
	return tarball.Entry{Name: name, Mode: 0o644, Size: int64(len(content)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
}

// someText returns text that compresses about as well as source code.
func someText(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 500)
	for i := range words {
		b := make([]byte, 2+r.IntN(9))
		for j := range b {
			b[j] = 'a' + byte(r.IntN(26))
		}
		words[i] = string(b)
	}
	var b bytes.Buffer
	for b.Len() < n {
		b.WriteString(words[min(r.IntN(500), r.IntN(500))])
		b.WriteByte(" \n.;"[r.IntN(4)])
	}
	return b.Bytes()[:n]
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// unpack reads a body with the standard library, and checks that it is a single
// gzip stream.
func unpack(t *testing.T, r io.Reader) (headers []*tar.Header, contents [][]byte) {
	t.Helper()
	in := bufio.NewReader(r)
	zr, err := gzip.NewReader(in)
	require.NoError(t, err)
	zr.Multistream(false)
	tr := tar.NewReader(zr)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		content, err := io.ReadAll(tr)
		require.NoError(t, err)
		headers, contents = append(headers, h), append(contents, content)
	}
	_, err = io.Copy(io.Discard, zr)
	require.NoError(t, err)
	_, err = in.ReadByte()
	require.Equal(t, io.EOF, err)
	return headers, contents
}

func TestBodyRoundTrip(t *testing.T) {
	when := time.Date(2026, 2, 3, 4, 5, 6, 700, time.UTC)
	long := strings.Repeat("directory/", 30) + strings.Repeat("n", 200)
	entries := []tarball.Entry{
		file("vercel/sandbox/a.txt", []byte("hello")),
		{Name: "empty", Mode: 0, ModTime: when},
		{Name: "dir", Mode: fs.ModeDir | fs.ModeSticky | 0o750, ModTime: when},
		{Name: "dir/link", Mode: fs.ModeSymlink | 0o777, Linkname: "../some where", ModTime: when},
		{Name: "tool", Mode: 0o755 | fs.ModeSetuid | fs.ModeSetgid, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }},
		file(long, someText(100)),
		file("ünï\n|'\"", []byte{0}),
		file("not \xff UTF-8", []byte{1}),
		file("before 1970", nil),
		file("text", someText(3*blockSize+17)),
		file("noise", noise(2*blockSize)),
	}
	entries[8].ModTime = time.Unix(-100, 0)
	read := map[string]func(*tarball.Body) io.Reader{
		"Read":       func(b *tarball.Body) io.Reader { return struct{ io.Reader }{b} },
		"half reads": func(b *tarball.Body) io.Reader { return iotest.HalfReader(b) },
		"WriteTo":    writtenTo,
		"half each":  func(b *tarball.Body) io.Reader { return io.MultiReader(io.LimitReader(b, 1000), deferred(b)) },
	}
	for how, reader := range read {
		t.Run(how, func(t *testing.T) {
			b := tarball.New(seq(entries...))
			defer b.Close()
			headers, contents := unpack(t, reader(b))
			require.Len(t, headers, len(entries))
			for i, e := range entries {
				h := headers[i]
				assert.Equal(t, e.Name, strings.TrimSuffix(h.Name, "/"))
				assert.Equal(t, e.Mode, h.FileInfo().Mode(), e.Name)
				assert.Equal(t, e.Linkname, h.Linkname)
				if !e.ModTime.IsZero() {
					assert.True(t, e.ModTime.Truncate(time.Second).Equal(h.ModTime), e.Name)
				}
				var want []byte
				if e.Open != nil {
					rc, _ := e.Open()
					want, _ = io.ReadAll(rc)
				}
				assert.True(t, bytes.Equal(want, contents[i]), e.Name)
			}
		})
	}
}

func writtenTo(b *tarball.Body) io.Reader {
	var buf bytes.Buffer
	n, err := b.WriteTo(&buf)
	if err != nil || n != int64(buf.Len()) {
		return iotest.ErrReader(fmt.Errorf("wrote %d of %d: %w", buf.Len(), n, err))
	}
	return &buf
}

// deferred returns the output of WriteTo. It calls WriteTo only at the first Read.
func deferred(b *tarball.Body) io.Reader {
	var r io.Reader
	return readerFunc(func(p []byte) (int, error) {
		if r == nil {
			r = writtenTo(b)
		}
		return r.Read(p)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestBodyWithoutFiles(t *testing.T) {
	b := tarball.New(seq())
	defer b.Close()
	headers, _ := unpack(t, b)
	assert.Empty(t, headers)
}

func TestBodySizesAroundTheBlock(t *testing.T) {
	for _, size := range []int{0, 1, 511, 512, 513, blockSize - 512, blockSize - 511, blockSize, blockSize + 1, 2*blockSize - 512 - 1024, 2 * blockSize} {
		content := someText(size)
		b := tarball.New(seq(file("f", content)))
		_, contents := unpack(t, b)
		require.NoError(t, b.Close())
		require.Len(t, contents, 1)
		require.True(t, bytes.Equal(content, contents[0]), "%d", size)
	}
}

func TestBodyFailsClearly(t *testing.T) {
	boom := errors.New("boom")
	source := func(r io.Reader) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(r), nil }
	}
	for _, test := range []struct {
		name    string
		entries iter.Seq2[tarball.Entry, error]
		is      error
		message string
	}{
		{"shorter", seq(tarball.Entry{Name: "a", Size: 10, Open: source(strings.NewReader("123"))}), io.ErrUnexpectedEOF, `"a" ended after 3 of the 10 bytes`},
		{"no source", seq(tarball.Entry{Name: "a", Size: 10}), io.ErrUnexpectedEOF, `"a" ended after 0 of the 10 bytes`},
		{"longer", seq(tarball.Entry{Name: "a", Size: 2, Open: source(strings.NewReader("123"))}), nil, `"a" has more content than the 2 bytes`},
		{"longer without WriteTo", seq(tarball.Entry{Name: "a", Size: 2, Open: source(iotest.HalfReader(strings.NewReader("123")))}), nil, `"a" has more content than the 2 bytes`},
		{"more than nothing", seq(tarball.Entry{Name: "a", Open: source(strings.NewReader("1"))}), nil, `"a" has more content than the 0 bytes`},
		{"read error", seq(tarball.Entry{Name: "a", Size: 2, Open: source(iotest.ErrReader(boom))}), boom, `reading "a": boom`},
		{"open error", seq(tarball.Entry{Name: "a", Open: func() (io.ReadCloser, error) { return nil, boom }}), boom, `opening "a": boom`},
		{"entry error", func(yield func(tarball.Entry, error) bool) { yield(tarball.Entry{}, boom) }, boom, "boom"},
		{"device", seq(tarball.Entry{Name: "a", Mode: fs.ModeDevice}), nil, "neither"},
		{"no name", seq(tarball.Entry{}), nil, "not possible"},
		{"negative", seq(tarball.Entry{Name: "a", Size: -1}), nil, "not possible"},
		{"NUL", seq(tarball.Entry{Name: "a\x00b"}), nil, "a\\x00b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := tarball.New(test.entries)
			defer b.Close()
			_, err := io.Copy(io.Discard, struct{ io.Reader }{b})
			require.ErrorContains(t, err, test.message)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			_, again := b.WriteTo(io.Discard)
			assert.Equal(t, err, again)
		})
	}
}

// TestBodyContinuesAfterFaults: an entry may permit that its source fails, or is shorter or
// longer than its size. Then the last entry of this name in the archive has the content that
// could be read.
func TestBodyContinuesAfterFaults(t *testing.T) {
	boom := errors.New("boom")
	long := someText(300_000)
	for _, test := range []struct {
		name  string
		size  int64
		reads []io.Reader // the sources, one for each time that the entry is opened
		want  []byte
		fault error
	}{
		{"as stated", 3, []io.Reader{strings.NewReader("123")}, []byte("123"), nil},
		{"longer", 2, []io.Reader{strings.NewReader("123")}, []byte("12"), tarball.ErrChanged},
		{"shorter", 300_001, []io.Reader{bytes.NewReader(long), bytes.NewReader(long)}, long, io.ErrUnexpectedEOF},
		{"shorter twice", 10, []io.Reader{strings.NewReader("12345"), strings.NewReader("12"), strings.NewReader("12")}, []byte("12"), tarball.ErrChanged},
		{"empty", 10, []io.Reader{strings.NewReader(""), strings.NewReader("")}, []byte{}, tarball.ErrChanged},
		{"shorter, then longer", 10, []io.Reader{strings.NewReader("12"), strings.NewReader("123")}, []byte("12"), tarball.ErrChanged},
		{"broken", 300_001, []io.Reader{io.MultiReader(bytes.NewReader(long[:200_000]), iotest.ErrReader(boom)), bytes.NewReader(long)}, long[:200_000], boom},
		{"broken twice", 10, []io.Reader{iotest.ErrReader(boom), iotest.ErrReader(boom)}, []byte{}, boom},
		{"not opened", 10, nil, nil, boom},
	} {
		t.Run(test.name, func(t *testing.T) {
			var faults []error
			written := 0
			reads := test.reads
			e := tarball.Entry{Name: "a", Mode: 0o644, Size: test.size, Written: func() { written++ }, Fault: func(err error) error {
				faults = append(faults, err)
				return nil
			}, Open: func() (io.ReadCloser, error) {
				if len(reads) == 0 {
					return nil, boom
				}
				r := reads[0]
				reads = reads[1:]
				return io.NopCloser(r), nil
			}}
			b := tarball.New(seq(file("before", long), e, file("z", long)))
			defer b.Close()
			headers, contents := unpack(t, b)
			last := map[string][]byte{}
			for i, h := range headers {
				last[h.Name] = contents[i]
			}
			assert.True(t, bytes.Equal(long, last["before"]) && bytes.Equal(long, last["z"]), "the files before and after it")
			assert.Equal(t, len(test.want), len(last["a"]))
			assert.True(t, bytes.Equal(test.want, last["a"]))
			assert.Equal(t, test.want != nil, written == 1)
			assert.Empty(t, reads)
			if test.fault == nil {
				assert.Empty(t, faults)
			} else {
				assert.ErrorIs(t, errors.Join(faults...), test.fault)
			}
		})
	}
}

func TestBodyClosedBeforeRead(t *testing.T) {
	opened := false
	b := tarball.New(func(func(tarball.Entry, error) bool) { opened = true })
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	<-b.Done()
	_, err := b.Read(make([]byte, 1))
	require.Error(t, err)
	assert.NotEqual(t, io.EOF, err)
	assert.False(t, opened)
}

func TestBodyClosedHalfway(t *testing.T) {
	closed := make(chan struct{})
	e := tarball.Entry{Name: "endless", Mode: 0o644, Size: 1 << 50, Open: func() (io.ReadCloser, error) {
		return struct {
			io.Reader
			io.Closer
		}{readerFunc(func(p []byte) (int, error) { return len(p), nil }), closer(func() { close(closed) })}, nil
	}}
	b := tarball.New(seq(e))
	_, err := io.CopyN(io.Discard, b, 100)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	<-b.Done()
	<-closed
	_, err = b.WriteTo(io.Discard)
	require.Error(t, err)
}

type closer func()

func (c closer) Close() error { c(); return nil }

// TestBodyClosedWhileASourceBlocks: if the Read of a source does not return, Close of the
// body closes the source and does not block.
func TestBodyClosedWhileASourceBlocks(t *testing.T) {
	pr, pw := io.Pipe()
	defer pw.Close()
	b := tarball.New(seq(tarball.Entry{Name: "stuck", Size: 5, Open: func() (io.ReadCloser, error) { return pr, nil }}))
	read := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, b)
		read <- err
	}()
	_, err := pw.Write([]byte("abc")) // returns when the body reads the source
	require.NoError(t, err)
	require.NoError(t, b.Close())
	require.Error(t, <-read)
	<-b.Done()
}

func TestOpenerWaitsForTheSources(t *testing.T) {
	content := someText(5 * blockSize)
	source := bytes.NewReader(content) // all attempts share this source
	open := tarball.Opener(t.Context(), func() iter.Seq2[tarball.Entry, error] {
		return seq(tarball.Entry{Name: "a", Size: int64(len(content)), Open: func() (io.ReadCloser, error) {
			_, err := source.Seek(0, io.SeekStart)
			return io.NopCloser(struct{ io.Reader }{source}), err
		}})
	})
	for range 5 {
		b, err := open()
		require.NoError(t, err)
		_, err = io.CopyN(io.Discard, b, 1000)
		require.NoError(t, err)
		// Don't close the body, because a transport may close it late.
	}
	b, err := open()
	require.NoError(t, err)
	defer b.Close()
	_, contents := unpack(t, b)
	assert.True(t, bytes.Equal(content, contents[0]))
}

func TestOpenerGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	release := make(chan struct{})
	reading := make(chan struct{})
	open := tarball.Opener(ctx, func() iter.Seq2[tarball.Entry, error] {
		return seq(tarball.Entry{Name: "a", Size: 1, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(readerFunc(func([]byte) (int, error) { close(reading); <-release; return 0, io.EOF })), nil
		}})
	})
	first, err := open()
	require.NoError(t, err)
	go func() { _, _ = first.Read(make([]byte, 1)) }()
	<-reading
	why := errors.New("the caller has given up")
	cancel(why)
	_, err = open()
	require.ErrorIs(t, err, why)
	close(release)
	<-first.(*tarball.Body).Done()
}

func TestBodyCompresses(t *testing.T) {
	size := func(content []byte) (ours, zlib int64) {
		b := tarball.New(seq(file("f", content)))
		defer b.Close()
		n, err := io.Copy(io.Discard, b)
		require.NoError(t, err)
		var buf bytes.Buffer
		zw := gzip.NewWriter(&buf)
		_, _ = zw.Write(content)
		_ = zw.Close()
		return n, int64(buf.Len())
	}
	ours, zlib := size(someText(4 << 20))
	assert.Less(t, float64(ours), 1.12*float64(zlib))
	ours, _ = size(noise(4 << 20))
	assert.Less(t, ours, int64(4<<20+10<<10), "data that can't be compressed hardly grows")
}

func TestBodyFromFiles(t *testing.T) {
	content := someText(300_000)
	name := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(name, content, 0o600))
	b := tarball.New(seq(tarball.Entry{Name: "f", Mode: 0o600, Size: int64(len(content)), Open: func() (io.ReadCloser, error) { return os.Open(name) }}))
	defer b.Close()
	_, contents := unpack(t, b)
	assert.True(t, bytes.Equal(content, contents[0]))
}

func FuzzEntryName(f *testing.F) {
	for _, name := range []string{"a", "a/b", "../x", "ü", "\xff", " ", "-", strings.Repeat("x", 300), "a\nb=c", "dir/"} {
		f.Add(name, "target")
	}
	f.Fuzz(func(t *testing.T, name, link string) {
		b := tarball.New(seq(file(name, []byte("content")), tarball.Entry{Name: name, Mode: fs.ModeSymlink, Linkname: link}))
		defer b.Close()
		data, err := io.ReadAll(b)
		if err != nil {
			return
		}
		headers, contents := unpack(t, bytes.NewReader(data))
		require.Len(t, headers, 2)
		assert.Equal(t, name, headers[0].Name)
		assert.Equal(t, link, headers[1].Linkname)
		assert.Equal(t, "content", string(contents[0]))
	})
}

func BenchmarkBody(b *testing.B) {
	many := make([]tarball.Entry, 1000)
	text := someText(4 << 20)
	for i := range many {
		many[i] = file(fmt.Sprintf("many/%05d.txt", i), text[i*4096:(i+1)*4096])
	}
	for _, bench := range []struct {
		name    string
		entries []tarball.Entry
		size    int
	}{
		{"text", []tarball.Entry{file("f", text)}, len(text)},
		{"noise", []tarball.Entry{file("f", noise(4<<20))}, 4 << 20},
		{"many", many, 1000 * 4096},
		{"tiny", []tarball.Entry{file("f", []byte("hello"))}, 5},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(bench.size))
			b.ReportAllocs()
			var n int64
			for b.Loop() {
				body := tarball.New(seq(slices.Clone(bench.entries)...))
				n, _ = io.Copy(io.Discard, body)
				_ = body.Close()
			}
			b.ReportMetric(float64(bench.size)/float64(n), "ratio")
		})
	}
}
