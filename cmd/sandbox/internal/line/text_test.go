package line

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestShellWords(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `echo 'a b' '' 'it'\''s' x=1 '$HOME' azAZ09 'a;b'`, ShellWords([]string{"echo", "a b", "", "it's", "x=1", "$HOME", "azAZ09", "a;b"}))
}
