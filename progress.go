package sandbox

import "io"

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
}

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
