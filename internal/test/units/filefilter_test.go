package units_test

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/filefilter"
)

func TestFilter(t *testing.T) {
	for _, tc := range []struct {
		include, exclude []string
		name             string
		keeps            bool
	}{
		{nil, nil, "a/b", true},
		{nil, []string{"node_modules"}, "a/node_modules/x/y", false},
		{nil, []string{"/node_modules"}, "a/node_modules/x", true},
		{nil, []string{"/node_modules"}, "node_modules/x", false},
		{nil, []string{"*.log"}, "a/b.log", false},
		{nil, []string{"a/*.log"}, "a/b/c.log", true},
		{nil, []string{"a/**/*.log"}, "a/c.log", false},
		{nil, []string{"a/**/*.log"}, "a/b/d/c.log", false},
		{nil, []string{"**/tmp/"}, "x/tmp/y", false},
		{[]string{"*.go"}, nil, "a/b.go", true},
		{[]string{"*.go"}, nil, "a/b.txt", false},
		{[]string{"src"}, nil, "src/deep/file", true},
		{[]string{"src"}, []string{"deep"}, "src/deep/file", false},
		{[]string{"src/**"}, nil, "src/deep/file", true},
		{[]string{"**"}, nil, "anything", true},
		{[]string{"[a-c]x"}, nil, "bx", true},
	} {
		f, err := filefilter.New(tc.include, tc.exclude)
		require.NoError(t, err)
		assert.Equal(t, tc.keeps, f.Keeps(tc.name), "%v %v %s", tc.include, tc.exclude, tc.name)
	}
	for _, bad := range []string{"", "/", "[", "a/[b/c"} {
		_, err := filefilter.New([]string{bad}, nil)
		assert.ErrorIs(t, err, path.ErrBadPattern, bad)
		assert.ErrorContains(t, err, fmt.Sprintf("Include: %q", bad))
	}
}

// TestFilterIsLinear: matching a pattern with many "**" does not take exponential time.
func TestFilterIsLinear(t *testing.T) {
	f, err := filefilter.New(nil, []string{strings.Repeat("**/a/", 30) + "b"})
	require.NoError(t, err)
	assert.False(t, f.Excluded(strings.Repeat("a/", 200)+"c"))
}
