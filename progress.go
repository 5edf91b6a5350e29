package sandbox

import "io"

// Progress is how far a transfer has come.
type Progress struct {
	// Path is the file that is being transferred, as it is called in the
	// sandbox.
	Path string
	// Done is the number of bytes of content transferred so far, of all files.
	// It falls back when a transfer has to begin again.
	Done int64
	// Total is what Done will be at the end, or -1 when that is not known.
	Total int64
}

// ProgressFunc is told of the progress of a transfer. It is called many times
// during the transfer, by one goroutine at a time, and the transfer waits for it
// to return.
type ProgressFunc func(Progress)

// meter counts what is transferred. A nil meter counts nothing.
type meter struct {
	report      ProgressFunc
	done, total int64
}

func newMeter(report ProgressFunc, total int64) *meter {
	if report == nil {
		return nil
	}
	return &meter{report: report, total: total}
}

// restart begins to count again for another attempt.
func (m *meter) restart() {
	if m != nil {
		m.done = 0
	}
}

func (m *meter) add(path string, n int) {
	if m != nil && n > 0 {
		m.done += int64(n)
		m.report(Progress{Path: path, Done: m.done, Total: m.total})
	}
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
