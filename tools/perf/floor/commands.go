package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/tools/perf/kit"
)

type cmdRequest struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	Sudo    bool              `json:"sudo"`
	Wait    bool              `json:"wait,omitempty"`
	Logs    bool              `json:"logs,omitempty"`
}

type command struct {
	ID       string `json:"id"`
	ExitCode *int   `json:"exitCode"`
}

type line struct {
	Stream  string   `json:"stream"`
	Data    string   `json:"data"`
	Command *command `json:"command"`
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 64<<10) }}

// decodeLines decodes each line of a log, and returns the length of the data.
func decodeLines(body io.ReadCloser) (n int64, finished bool, err error) {
	defer body.Close()
	br := readers.Get().(*bufio.Reader)
	defer readers.Put(br)
	br.Reset(body)
	var long []byte
	for {
		b, err := br.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			long = append(long, b...)
			continue
		}
		if len(long) > 0 {
			b = append(long, b...)
			long = long[:0]
		}
		if err != nil && (err != io.EOF || len(b) > 0) {
			return n, finished, err
		}
		if err == io.EOF {
			return n, finished, nil
		}
		var l line
		if err := json.Unmarshal(b, &l); err != nil {
			return n, false, err
		}
		if l.Command != nil {
			finished = l.Command.ExitCode != nil
			continue
		}
		k, _ := io.WriteString(io.Discard, l.Data)
		n += int64(k)
	}
}

func runWaited(cmd string, args ...string) (int64, error) {
	resp, err := post(session+"/cmd"+query, cmdRequest{Command: cmd, Args: args, Env: map[string]string{}, Wait: true, Logs: true})
	if err != nil {
		return 0, err
	}
	n, finished, err := decodeLines(resp.Body)
	if err == nil && !finished {
		err = errors.New("the stream ended early")
	}
	return n, err
}

func startup(r *kit.Run) error {
	r.Ops(1)
	return r.Timed(func() error {
		if err := create(); err != nil {
			return err
		}
		_, err := runWaited("echo", "hello")
		return err
	})
}

func roundTrips(r *kit.Run) error {
	if err := create(); err != nil {
		return err
	}
	return r.RoundTrips(func() error {
		_, err := runWaited("echo", "hello")
		return err
	})
}

func logsWaited(r *kit.Run) error {
	if err := create(); err != nil {
		return err
	}
	r.Bytes(r.Int("bytes"))
	var got int64
	err := r.Timed(func() (err error) {
		got, err = runWaited("emit", r.EmitArgs()...)
		return err
	})
	r.Expect(got, r.Int("bytes"))
	return err
}

// openLogs starts a detached command emit. It returns a function that requests its logs.
func openLogs(r *kit.Run) (func() (*http.Response, error), error) {
	if err := create(); err != nil {
		return nil, err
	}
	id, err := start("emit", r.EmitArgs()...)
	if err != nil {
		return nil, err
	}
	return func() (*http.Response, error) { return logsOf(id) }, nil
}

// start starts a detached command and returns its ID.
func start(cmd string, args ...string) (string, error) {
	resp, err := post(session+"/cmd"+query, cmdRequest{Command: cmd, Args: args, Env: map[string]string{}})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var out struct {
		Command command `json:"command"`
	}
	err = json.NewDecoder(resp.Body).Decode(&out)
	return out.Command.ID, err
}

func logsOf(id string) (*http.Response, error) {
	return request("GET", session+"/cmd/"+id+"/logs"+query, "application/json", nil)
}

func logsDetached(r *kit.Run) error {
	r.Bytes(r.Int("bytes"))
	open, err := openLogs(r)
	if err != nil {
		return err
	}
	return r.Timed(func() error {
		resp, err := open()
		if err != nil {
			return err
		}
		n, _, err := decodeLines(resp.Body)
		r.Expect(n, r.Int("bytes"))
		return err
	})
}

// logsSlow reads the beginning of a log slowly, and then stops.
func logsSlow(r *kit.Run) error {
	want := r.Int("read")
	r.Bytes(want)
	open, err := openLogs(r)
	if err != nil {
		return err
	}
	var got int64
	err = r.Timed(func() error {
		resp, err := open()
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		br := bufio.NewReaderSize(resp.Body, 64<<10)
		for n := 1; ; n++ {
			b, err := br.ReadSlice('\n')
			if err != nil {
				return err
			}
			var l line
			if err := json.Unmarshal(b, &l); err != nil {
				return err
			}
			if got += int64(len(l.Data)); got >= want {
				return nil
			}
			if n%16 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	})
	r.Expect(got, want)
	return err
}
