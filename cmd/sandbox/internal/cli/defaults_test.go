package cli

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzDefaults: a folder's file gives values to options that may have a default,
// each once and in their order, or is refused.
func FuzzDefaults(f *testing.F) {
	for _, seed := range []string{
		"image = \"x\"\nvcpus = 2\ntag = [\"a=b\", 1, true]", "env = [\"SECRET\"]", "[image]\na = 1", "image.a = 1", "tag = [[]]", "vcpus = 1979-05-27", "vcpus = nan",
		"\"image\" = \"\\u001b[2J\"", "image = \"a\"\nimage = \"b\"", "vcpus = 0x7fffffffffffffff", "\xff", "tag = []", "IMAGE = \"x\"",
	} {
		f.Add([]byte(seed))
	}
	order := slices.Concat(defaultOptions...)
	f.Fuzz(func(t *testing.T, data []byte) {
		values, err := parseDefaults(defaultsFile, data)
		if err != nil {
			assert.Empty(t, values)
			return
		}
		last := -1
		for _, v := range values {
			at := slices.Index(order, v.option)
			assert.Greater(t, at, last, v.option)
			last = at
		}
	})
}
