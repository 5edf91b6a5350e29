// Command floor runs the cases of the harness with net/http and encoding/json alone. Its figures
// are a lower bound for a client. It decodes every line of a log, and uploads tar archives that
// it compresses with gzip at the default level.
//
//	floor <case> [key=value]...
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync"

	"github.com/go-vercel/sandbox/tools/perf/kit"
)

var (
	client  *http.Client
	session string // the session's URL
)

const query = "?teamId=team_stub"

func main() {
	tr := &http.Transport{
		MaxIdleConnsPerHost: 256,
		DisableCompression:  true,
		ReadBufferSize:      64 << 10,
		WriteBufferSize:     64 << 10,
		ForceAttemptHTTP2:   os.Getenv("PERF_H2") == "1",
	}
	config, err := kit.TLS()
	if err != nil {
		panic(err)
	}
	tr.TLSClientConfig = config
	client = &http.Client{Transport: tr}

	kit.Main("floor-json", runtime.Version(), os.Args[1:], kit.Cases{
		"startup":               startup,
		"rtt-seq":               roundTrips,
		"rtt-conc":              roundTrips,
		"logs-ascii":            logsWaited,
		"logs-small":            logsWaited,
		"logs-escapes":          logsWaited,
		"logs-perline":          logsWaited,
		"memory":                logsWaited,
		"logs-detached":         logsDetached,
		"logs-slow":             logsSlow,
		"upload-big":            uploadBig,
		"upload-incompressible": uploadBig,
		"upload-file":           uploadFile,
		"upload-many":           uploadMany,
		"download-stream":       downloadStream,
		"download-file":         downloadFile,
		"list":                  list,
		"scale":                 scale,
	})
}

func request(method, url, contentType string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return nil, err
	}
	req.Header["Authorization"] = []string{"Bearer stub-token"}
	req.Header["Content-Type"] = []string{contentType}
	if contentType == "application/gzip" {
		req.Header["X-Cwd"] = []string{"/"}
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", resp.Status, b)
	}
	return resp, nil
}

func post(url string, v any) (*http.Response, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return request("POST", url, "application/json", bytes.NewReader(b))
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// drop reads a body to its end, closes it, and returns the number of bytes.
func drop(body io.ReadCloser) (int64, error) {
	defer body.Close()
	bp := buffers.Get().(*[]byte)
	defer buffers.Put(bp)
	var n int64
	for {
		k, err := body.Read(*bp)
		n += int64(k)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

func create() error {
	resp, err := post(kit.StubURL()+"/api/v2/sandboxes"+query, map[string]any{"projectId": "prj_stub", "ports": []int{}})
	if err != nil {
		return err
	}
	var out struct {
		Session struct {
			ID string `json:"id"`
		} `json:"session"`
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return err
	}
	session = kit.StubURL() + "/api/v2/sandboxes/sessions/" + out.Session.ID
	return nil
}
