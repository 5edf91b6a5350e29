package kit

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// starters is the number of sandboxes that Follow creates at once.
const starters = 64

// Follow calls start for each of the case's sandboxes. start must start a command that prints
// lines, with a pause in milliseconds before each. Follow then calls all returned functions at
// once. They must read to the end of the command's output and return the number of lines.
// Halfway, Follow records the resources in use.
func (r *Run) Follow(start func(lines, pause string) (follow func() (int64, error), err error)) error {
	n, lines, pause := int(r.Int("sandboxes")), r.Int("lines"), time.Duration(r.Int("pause"))*time.Millisecond
	r.Ops(int64(n))
	follow := make([]func() (int64, error), n)
	if err := AtOnce(starters, int64(n), func(i int64) (err error) {
		follow[i], err = start(r.Str("lines"), r.Str("pause"))
		return err
	}); err != nil {
		return err
	}
	errs := make([]error, n)
	var got atomic.Int64
	err := r.Timed(func() error {
		var group sync.WaitGroup
		for i := range n {
			group.Go(func() {
				n, err := follow[i]()
				got.Add(n)
				errs[i] = err
			})
		}
		// At half of the time, all functions are reading.
		time.Sleep(time.Duration(lines) * pause / 2)
		r.Extra["goroutines"] = runtime.NumGoroutine()
		if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
			r.Extra["descriptors"] = len(fds)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		r.Extra["heap_mb"] = float64(m.HeapInuse) / (1 << 20)
		r.Extra["stack_mb"] = float64(m.StackInuse) / (1 << 20)
		group.Wait()
		return errors.Join(errs...)
	})
	if want := int64(n) * lines; got.Load() != want {
		r.Expect(got.Load(), want)
	}
	return err
}
