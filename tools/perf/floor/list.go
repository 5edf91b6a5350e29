package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/go-vercel/sandbox/tools/perf/kit"
)

func list(r *kit.Run) error {
	total, limit := r.Int("total"), r.Int("limit")
	r.Ops(total)
	base := fmt.Sprintf("%s/api/v2/sandboxes%s&project=prj_stub&limit=%d&namePrefix=gen-%d-", kit.StubURL(), query, limit, total)
	return r.Timed(func() error {
		var got int64
		cursor := ""
		buf := make([]byte, 0, 256<<10)
		for {
			url := base
			if cursor != "" {
				url += "&cursor=" + cursor
			}
			resp, err := request("GET", url, "application/json", nil)
			if err != nil {
				return err
			}
			buf, err = readInto(buf[:0], resp.Body)
			if err != nil {
				return err
			}
			var n int64
			if n, cursor, err = decodePage(buf); err != nil {
				return err
			}
			got += n
			if cursor == "" {
				break
			}
		}
		if got != total {
			r.Extra["mismatch"] = fmt.Sprintf("listed %d, want %d", got, total)
		}
		return nil
	})
}

func readInto(b []byte, body io.ReadCloser) ([]byte, error) {
	defer body.Close()
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

type pagination struct {
	Count int64  `json:"count"`
	Next  string `json:"next"`
}

type sandbox struct {
	Name          string `json:"name"`
	Persistent    bool   `json:"persistent"`
	Region        string `json:"region"`
	VCPUs         int    `json:"vcpus"`
	Memory        int    `json:"memory"`
	Runtime       string `json:"runtime"`
	Timeout       int64  `json:"timeout"`
	NetworkPolicy struct {
		Mode string `json:"mode"`
	} `json:"networkPolicy"`
	TotalEgressBytes         int64             `json:"totalEgressBytes"`
	TotalIngressBytes        int64             `json:"totalIngressBytes"`
	TotalActiveCPUDurationMs int64             `json:"totalActiveCpuDurationMs"`
	TotalDurationMs          int64             `json:"totalDurationMs"`
	CreatedAt                int64             `json:"createdAt"`
	UpdatedAt                int64             `json:"updatedAt"`
	CurrentSessionID         string            `json:"currentSessionId"`
	Status                   string            `json:"status"`
	StatusUpdatedAt          int64             `json:"statusUpdatedAt"`
	Cwd                      string            `json:"cwd"`
	Tags                     map[string]string `json:"tags"`
}

func decodePage(b []byte) (int64, string, error) {
	var page struct {
		Sandboxes  []sandbox  `json:"sandboxes"`
		Pagination pagination `json:"pagination"`
	}
	if err := json.Unmarshal(b, &page); err != nil {
		return 0, "", err
	}
	return int64(len(page.Sandboxes)), page.Pagination.Next, nil
}
