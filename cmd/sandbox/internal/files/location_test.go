package files

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLocations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Location{
		"-": {Path: "-", Stream: true}, "a.txt": {Path: "a.txt"}, "./a:b": {Path: "./a:b"}, "/x/a:b": {Path: "/x/a:b"}, `C:\x`: {Path: `C:\x`},
		"web:/a": {Sandbox: "web", Path: "/a"}, "web:a:b": {Sandbox: "web", Path: "a:b"}, "web:": {Sandbox: "web", Path: "."}, "web:~x": {Sandbox: "web", Path: "~x"},
	} {
		got, err := ParseLocation(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"web:~", "web:~/x", "@:x", ":x", "a b:x", "wéb:x"} {
		_, err := ParseLocation(text)
		assert.Error(t, err, text)
	}
	for text, into := range map[string]bool{"web:a/": true, "web:a": false, "web:.": true, "x/": true, "x/.": true, "x": false, ".": true} {
		l, err := ParseLocation(text)
		require.NoError(t, err)
		assert.Equal(t, into, l.intoDir(), text)
	}
}
