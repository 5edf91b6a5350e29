package sandbox

import (
	"context"
	"io"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/observe"
)

// Progress is the state of a transfer.
type Progress struct {
	// Path is the path in the sandbox of the file that is being transferred.
	Path string
	// Done is the number of bytes transferred so far, of all files. It
	// decreases if a transfer is retried.
	Done int64
	// Total is the value of Done at the end, or -1 if it is not known.
	Total int64
}

// meter counts the bytes transferred. A nil meter counts nothing.
type meter struct {
	report      func(Progress)
	done, total int64
	// tell, if not nil, tells observers, at most once in a while.
	tell func(done int64)
	told time.Time
}

// tellEvery is how often observers are told of a transfer, as long as bytes come.
const tellEvery = time.Second

func newMeter(report func(Progress), total int64) *meter {
	if report == nil {
		return nil
	}
	return &meter{report: report, total: total}
}

// restart starts counting again for another attempt.
func (m *meter) restart() {
	if m != nil {
		m.done = 0
	}
}

func (m *meter) add(path string, n int) {
	if m != nil && n > 0 {
		m.done += int64(n)
		if m.report != nil {
			m.report(Progress{Path: path, Done: m.done, Total: m.total})
		}
		if m.tell != nil && time.Since(m.told) >= tellEvery {
			m.told = time.Now()
			m.tell(m.done)
		}
	}
}

// watch makes a meter that tells observers of the transfer e, too.
func (c *Client) watch(ctx context.Context, e *api.Span, m *meter) *meter {
	if !e.Observed() {
		return m
	}
	if m == nil {
		m = &meter{}
	}
	m.told = e.Start
	progress := e.Event
	progress.Kind, progress.Operation = observe.Progress, string(e.Kind)
	m.tell = func(done int64) {
		if progress.Operation == string(observe.Upload) {
			progress.Sent = done
		} else {
			progress.Received = done
		}
		c.tell(ctx, progress)
	}
	return m
}

// reader counts what is read from rc as content of path.
func (m *meter) reader(path string, rc io.ReadCloser) io.ReadCloser {
	if m == nil {
		return rc
	}
	return &meteredReader{ReadCloser: rc, meter: m, path: path}
}

type meteredReader struct {
	io.ReadCloser
	meter *meter
	path  string
}

func (r *meteredReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.meter.add(r.path, n)
	return n, err
}
