package sandbox

import (
	"net/url"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzListQuery sends every filter of a listing in the query of a URL: each
// value arrives unchanged, and unset filters are not sent.
func FuzzListQuery(f *testing.F) {
	f.Add("prj", "box", "a b&c=d", "pre%2ffix", "k", "v:é", 10)
	f.Add("", "", "", "", "", "", 0)
	f.Add("p", "\x00", "+", "#?", ":", "\xff", -1)
	f.Fuzz(func(t *testing.T, project, name, cursor, prefix, key, value string, limit int) {
		q := listQuery{
			Project: project, Name: name, Limit: limit, Cursor: cursor, NamePrefix: prefix, SortBy: string(SortByName),
			SortOrder: "asc", Tags: []string{key + ":" + value},
		}
		values, err := q.values()
		if limit < 0 || limit > 50 {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.NoError(t, err)
		got, err := url.ParseQuery(values.Encode())
		require.NoError(t, err)
		want := url.Values{
			"project": {project}, "sortBy": {"name"}, "sortOrder": {"asc"}, "tags": {key + ":" + value},
		}
		if project == "" {
			want.Del("project")
		}
		for k, v := range map[string]string{"name": name, "cursor": cursor, "namePrefix": prefix} {
			if v != "" {
				want.Set(k, v)
			}
		}
		if limit > 0 {
			want.Set("limit", strconv.Itoa(limit))
		}
		require.Equal(t, want, got)
	})
}
