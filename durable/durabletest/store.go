package durabletest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"testing"

	"github.com/go-vercel/sandbox/durable"
)

// TestStore tests an implementation of [durable.OutputStore]. It writes about 30 MiB below
// its own prefix and removes them at the end, so the store may be in use.
func TestStore(t *testing.T, store durable.OutputStore) {
	s := &storeTest{store, "durabletest-" + rand.Text() + "/"}
	t.Cleanup(func() {
		if err := store.Remove(context.WithoutCancel(t.Context()), s.prefix); err != nil {
			t.Errorf("Remove: %v", err)
		}
	})
	t.Run("Content", s.content)
	t.Run("Missing", s.missing)
	t.Run("Whole", s.whole)
	t.Run("Replace", s.replace)
	t.Run("ReplaceWhileRead", s.replaceWhileRead)
	t.Run("Concurrent", s.concurrent)
	t.Run("Remove", s.remove)
	t.Run("Keys", s.keys)
}

type storeTest struct {
	store  durable.OutputStore
	prefix string
}

func (s *storeTest) put(t *testing.T, key string, data []byte) {
	t.Helper()
	w, err := s.store.Create(t.Context(), s.prefix+key)
	if err != nil {
		t.Fatalf("Create(%q): %v", key, err)
	}
	defer w.Close()
	for rest := data; len(rest) > 0; { // write in pieces
		n := min(len(rest), 100_000)
		if wrote, err := w.Write(rest[:n]); err != nil || wrote != n {
			t.Fatalf("Write of %d bytes: %d, %v", n, wrote, err)
		}
		rest = rest[n:]
	}
	if err := w.Commit(); err != nil {
		t.Fatalf("Commit(%q): %v", key, err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("Close after Commit(%q): %v", key, err)
	}
}

// get returns an object, or fs.ErrNotExist.
func (s *storeTest) get(t *testing.T, key string) ([]byte, error) {
	t.Helper()
	r, err := s.store.Open(t.Context(), s.prefix+key)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("Open(%q): %v", key, err)
		}
		return nil, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("reading %q: %v", key, err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing the reader of %q: %v", key, err)
	}
	return data, nil
}

func (s *storeTest) expect(t *testing.T, key string, want []byte) {
	t.Helper()
	got, err := s.get(t, key)
	if err != nil {
		t.Errorf("%q is missing", key)
	} else if !bytes.Equal(got, want) {
		t.Errorf("%q has %d bytes, want the %d that were written last", key, len(got), len(want))
	}
}

// random returns n random bytes.
func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data) // never fails
	return data
}

func (s *storeTest) content(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 1<<20 + 1, 18 << 20} {
		data := random(size)
		key := fmt.Sprintf("content/%d", size)
		s.put(t, key, data)
		s.expect(t, key, data)
	}
}

func (s *storeTest) missing(t *testing.T) {
	s.put(t, "missing/folder/object", []byte("x"))
	for _, key := range []string{"missing/object", "missing/folder/object2", "missing/folder/objec"} {
		if _, err := s.get(t, key); err == nil {
			t.Errorf("%q exists", key)
		}
	}
}

// whole checks that an object appears only when it is committed.
func (s *storeTest) whole(t *testing.T) {
	for _, had := range []bool{false, true} {
		key := fmt.Sprintf("whole/%v", had)
		if had {
			s.put(t, key, []byte("the old one"))
		}
		unchanged := func(when string) {
			t.Helper()
			got, err := s.get(t, key)
			if had && string(got) != "the old one" || !had && err == nil {
				t.Errorf("%s there is %q", when, got)
			}
		}
		w, err := s.store.Create(t.Context(), s.prefix+key)
		if err != nil {
			t.Fatal(err)
		}
		unchanged("after Create")
		if _, err := w.Write(random(1 << 20)); err != nil {
			t.Fatal(err)
		}
		unchanged("after Write")
		if err := w.Close(); err != nil {
			t.Errorf("Close without Commit: %v", err)
		}
		unchanged("after Close without Commit")
	}
}

func (s *storeTest) replace(t *testing.T) {
	for _, size := range []int{1 << 20, 10, 0, 2 << 20} {
		data := random(size)
		s.put(t, "replace", data)
		s.expect(t, "replace", data)
	}
}

// replaceWhileRead checks that a reader gets only one of two objects.
func (s *storeTest) replaceWhileRead(t *testing.T) {
	before, after := bytes.Repeat([]byte("a"), 4<<20), bytes.Repeat([]byte("b"), 4<<20)
	s.put(t, "replaced", before)
	r, err := s.store.Open(t.Context(), s.prefix+"replaced")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first := make([]byte, 1)
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	s.put(t, "replaced", after)
	rest, err := io.ReadAll(r)
	if got := slices.Concat(first, rest); err == nil && !bytes.Equal(got, before) {
		t.Errorf("a reader got %d bytes of the old object and %d of the new one", bytes.Count(got, []byte("a")), bytes.Count(got, []byte("b")))
	}
	s.expect(t, "replaced", after)
}

// concurrent checks that concurrent writers, of one key or of many, do not mix their data.
func (s *storeTest) concurrent(t *testing.T) {
	const writers = 6
	all := make([][]byte, writers)
	var wg sync.WaitGroup
	for i := range all {
		all[i] = bytes.Repeat([]byte{byte('a' + i)}, 300_000+i)
		wg.Go(func() {
			for _, key := range []string{"concurrent/same", fmt.Sprintf("concurrent/%d", i)} {
				w, err := s.store.Create(t.Context(), s.prefix+key)
				if err != nil {
					t.Errorf("Create: %v", err)
					return
				}
				if _, err = w.Write(all[i]); err == nil {
					err = w.Commit()
				}
				if err = errors.Join(err, w.Close()); err != nil {
					t.Errorf("writing %q concurrently: %v", key, err)
				}
			}
		})
	}
	wg.Wait()
	for i, data := range all {
		s.expect(t, fmt.Sprintf("concurrent/%d", i), data)
	}
	got, err := s.get(t, "concurrent/same")
	if err != nil || len(got) == 0 || !bytes.Equal(got, all[int(got[0]-'a')%writers]) {
		t.Errorf("the object of a shared key is not that of one writer: %d bytes, %v", len(got), err)
	}
}

func (s *storeTest) remove(t *testing.T) {
	keep := []string{"remove/ab/x", "remove/a_/x", "remove_/a/x"}
	s.put(t, "case/A", nil)
	if _, err := s.get(t, "case/a"); err != nil { // some systems ignore case
		keep = append(keep, "remove/A/x")
	}
	gone := []string{"remove/a/x", "remove/a/y/z", "remove/a/%"}
	for _, key := range append(keep, gone...) {
		s.put(t, key, []byte(key))
	}
	for range 2 { // the second call finds nothing, which is not an error
		if err := s.store.Remove(t.Context(), s.prefix+"remove/a/"); err != nil {
			t.Fatalf("Remove: %v", err)
		}
	}
	for _, key := range keep {
		s.expect(t, key, []byte(key))
	}
	for _, key := range gone {
		if _, err := s.get(t, key); err == nil {
			t.Errorf("%q is still there", key)
		}
	}
	s.put(t, "remove/a/x", []byte("again"))
	s.expect(t, "remove/a/x", []byte("again"))
}

// keys checks that invalid keys and prefixes are refused.
func (s *storeTest) keys(t *testing.T) {
	for _, key := range []string{"", ".", "/", "/x", "../x", s.prefix + "../x", s.prefix + "a//b", s.prefix + "./a", s.prefix + "a/.."} {
		if w, err := s.store.Create(t.Context(), key); err == nil {
			_ = w.Close()
			t.Errorf("Create accepts the key %q", key)
		}
		if r, err := s.store.Open(t.Context(), key); err == nil {
			_ = r.Close()
			t.Errorf("Open accepts the key %q", key)
		}
		if err := s.store.Remove(t.Context(), key+"/"); err == nil {
			t.Errorf("Remove accepts the prefix %q", key+"/")
		}
	}
}
