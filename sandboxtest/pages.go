package sandboxtest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

const defaultLimit = 20

// cursor says where a page starts: after the item with this key. It holds no position in
// the list. If items are created or deleted between two pages, no other item is repeated or
// skipped.
type cursor struct {
	By   string `json:"b"`
	Desc bool   `json:"d"`
	Key  string `json:"k"`
	ID   string `json:"i"`
}

// pageQuery is the common part of the queries of listings.
type pageQuery struct {
	limit int
	desc  bool
	after *cursor
}

// sortKey is the key by which items are sorted. Items with equal keys are sorted by ID.
type sortKey struct{ key, id string }

func compareKeys(a, b sortKey) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.id, b.id))
}

// timeKey formats a time as text, so that sorting the texts sorts the times.
func timeKey(t wire.Time) string {
	if t.IsZero() {
		return ""
	}
	text := strconv.FormatInt(t.UnixMicro(), 10)
	return "00000000000000000000"[:max(0, 20-len(text))] + text
}

// flag reads a boolean parameter of the query. A missing one is false.
func (c *call) flag(name string) (bool, error) {
	switch c.r.URL.Query().Get(name) {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	}
	return false, reply.Invalid("`%s` should be equal to one of the allowed values \"true, false\".", name)
}

// parsePage reads limit, sortOrder and cursor. by names the sort order. A cursor is valid
// only for the order in which it was made.
func parsePage(q url.Values, by string, limit int) (*pageQuery, error) {
	p := &pageQuery{limit: min(defaultLimit, limit), desc: true}
	if q.Has("limit") {
		n, err := strconv.Atoi(q.Get("limit"))
		switch {
		case err != nil:
			return nil, reply.Invalid("`limit` should be integer.")
		case n < 1:
			return nil, reply.Invalid("`limit` should be >= 1.")
		case n > limit:
			return nil, reply.Invalid("`limit` should be <= %d.", limit)
		}
		p.limit = n
	}
	switch order := q.Get("sortOrder"); order {
	case "", "desc":
	case "asc":
		p.desc = false
	default:
		return nil, reply.Invalid("`sortOrder` should be equal to one of the allowed values \"asc, desc\".")
	}
	if text := q.Get("cursor"); text != "" {
		c, err := parseCursor(text)
		if err != nil || c.By != by || c.Desc != p.desc {
			return nil, reply.Invalid("`cursor` is not one of this listing")
		}
		p.after = c
	}
	return p, nil
}

func parseCursor(text string) (*cursor, error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	c := new(cursor)
	return c, json.Unmarshal(data, c)
}

func (c *cursor) String() string {
	data, _ := json.Marshal(c) // strings and a bool always encode
	return base64.RawURLEncoding.EncodeToString(data)
}

// paginate sorts items and returns those on the page.
func paginate[T any](p *pageQuery, by string, items []T, key func(T) sortKey) ([]T, wire.Pagination) {
	compare := func(a, b sortKey) int {
		if p.desc {
			a, b = b, a
		}
		return compareKeys(a, b)
	}
	slices.SortFunc(items, func(a, b T) int { return compare(key(a), key(b)) })
	if p.after != nil {
		after := sortKey{p.after.Key, p.after.ID}
		items = slices.DeleteFunc(items, func(item T) bool { return compare(key(item), after) <= 0 })
	}
	var next *string
	if len(items) > p.limit {
		items = items[:p.limit]
		last := key(items[p.limit-1])
		next = new((&cursor{By: by, Desc: p.desc, Key: last.key, ID: last.id}).String())
	}
	return items, wire.Pagination{Count: len(items), Next: next}
}
