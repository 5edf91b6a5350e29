package main

import (
	"bufio"
	"encoding/json"

	"github.com/go-vercel/sandbox/tools/perf/kit"
)

// scale follows as many commands as the case has sandboxes. All of them run in one session.
func scale(r *kit.Run) error {
	if err := create(); err != nil {
		return err
	}
	return r.Follow(func(lines, pause string) (func() (int64, error), error) {
		id, err := start("tick", lines, pause)
		if err != nil {
			return nil, err
		}
		return func() (n int64, err error) {
			resp, err := logsOf(id)
			if err != nil {
				return 0, err
			}
			defer resp.Body.Close()
			for s := bufio.NewScanner(resp.Body); ; n++ {
				if !s.Scan() {
					return n, s.Err()
				}
				var l line
				if err := json.Unmarshal(s.Bytes(), &l); err != nil {
					return n, err
				}
			}
		}, nil
	})
}
