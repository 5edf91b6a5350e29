package sandboxtest

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzControl: the control API responds to any request with its token, with a result or
// with an error. Time never goes backwards.
func FuzzControl(f *testing.F) {
	s, err := NewServer(&Options{Mode: Folder, ControlToken: "ctl_fuzz"})
	require.NoError(f, err)
	f.Cleanup(func() { assert.NoError(f, s.Close()) })
	routes := slices.Sorted(maps.Keys(controlRoutes))
	for i := range routes {
		f.Add(uint8(i), "", []byte(`{}`))
	}
	for i, body := range []string{
		`{"advanceMs":3155760000000}`, `{"advanceMs":3055760000100}`, `{"status":599,"times":-9,"probability":2,"retryAfterMs":-1,"delayMs":9223372036854775807}`, `{"path":"[","operation":"x"}`,
		`{"times":null}`, `[]`, `null`, `{"advanceMs":1e400}`,
	} {
		f.Add(uint8(i), "9223372036854775807", []byte(body))
		f.Add(uint8(i+3), "-1", []byte(body))
	}
	f.Fuzz(func(t *testing.T, which uint8, word string, body []byte) {
		method, path, _ := strings.Cut(routes[int(which)%len(routes)], " ")
		target := controlPath + path + "?after=" + url.QueryEscape(word)
		before := s.Now()
		status, answer := s.sendControl(method, target, body)
		assert.Less(t, status, http.StatusInternalServerError, "%s %s: %s", method, target, answer)
		if status != http.StatusNoContent && status/100 != 3 {
			assert.True(t, json.Valid(answer), "%s", answer)
		}
		assert.False(t, s.Now().Before(before))
		status, answer = s.sendControl("DELETE", controlPath+"/faults", nil)
		assert.Equal(t, http.StatusNoContent, status, "%s", answer)
	})
}

func (s *Server) sendControl(method, target string, body []byte) (status int, answer []byte) {
	r := httptest.NewRequest(method, target, bytes.NewReader(body))
	r.Host = "localhost"
	r.Header.Set("Authorization", "Bearer "+s.opts.ControlToken)
	w := httptest.NewRecorder()
	s.serve(w, r)
	return w.Code, w.Body.Bytes()
}

// FuzzPage: from any cursor on, no item is on two pages, and the pages come to an end.
func FuzzPage(f *testing.F) {
	f.Add("limit=1&sortOrder=asc", "abc")
	f.Add("limit=50", "")
	f.Add("cursor=eyJiIjoibmFtZSIsImQiOnRydWUsImsiOiJiIiwiaSI6ImIifQ", "abcabc")
	f.Add("cursor="+(&cursor{By: "name", Key: "\xff", ID: "x"}).String()+"&sortOrder=asc", "zz\x00")
	f.Fuzz(func(t *testing.T, query, letters string) {
		q, err := url.ParseQuery(query)
		if err != nil || len(letters) > 100 {
			return
		}
		type item struct {
			key string
			id  int
		}
		var all []item
		for i, letter := range letters {
			all = append(all, item{string(letter), i})
		}
		seen := map[int]bool{}
		for range len(all) + 1 {
			p, err := parsePage(q, "name", 50)
			if err != nil {
				return
			}
			items, page := paginate(p, "name", append([]item(nil), all...), func(i item) sortKey { return sortKey{i.key, string(rune('a' + i.id))} })
			require.LessOrEqual(t, len(items), p.limit)
			for _, i := range items {
				require.False(t, seen[i.id], "twice")
				seen[i.id] = true
			}
			if page.Next == nil {
				return
			}
			require.NotEmpty(t, items)
			q.Set("cursor", *page.Next)
		}
		t.Fatal("the pages have no end")
	})
}
