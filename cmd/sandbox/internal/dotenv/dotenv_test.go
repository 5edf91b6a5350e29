package dotenv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	got := Parse("\ufeffA=1\nexport B = two words # note\r\nC='single # kept \\n'\nD=\"line\\nbreak\"\nE=`x\"y'z`\n# F=1\nG=\nH: yaml\nI=\"two\nlines\"\nJ=a=b\n not a line\n")
	assert.Equal(t, map[string]string{
		"A": "1", "B": "two words", "C": "single # kept \\n", "D": "line\nbreak", "E": `x"y'z`, "G": "", "H": "yaml", "I": "two\nlines", "J": "a=b",
	}, got)
}

func TestLoadOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		".env": "A=1\nB=1\nC=1\nD=1", ".env.local": "B=2\nC=2\nD=2", ".env.production": "C=3\nD=3", ".env.production.local": "D=4",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	assert.Equal(t, map[string]string{"A": "1", "B": "2", "C": "3", "D": "4"}, load(t, dir, "production"))
	assert.Equal(t, map[string]string{"A": "1", "B": "2", "C": "2", "D": "2"}, load(t, dir, ""))
	assert.Equal(t, map[string]string{"A": "1", "B": "1", "C": "1", "D": "1"}, load(t, dir, "test"))
	assert.Equal(t, map[string]string{"A": "1", "B": "2", "C": "2", "D": "2"}, load(t, dir, "../../etc"))
}

func TestNotAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".env"), 0o700))
	assert.Empty(t, load(t, dir, ""))
	_, err := LoadFile(filepath.Join(dir, ".env"))
	assert.Error(t, err)
}

// FuzzParse: whatever a file contains, its names are valid names of variables.
func FuzzParse(f *testing.F) {
	f.Add("A=1\nexport B='x\ny' # z\nC: \"a\\n\"\n")
	f.Add("A=\"\n`=\r\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name := range Parse(text) {
			assert.Regexp(t, `^[\w.-]+$`, name)
		}
	})
}

func load(t *testing.T, dir, environment string) map[string]string {
	t.Helper()
	vars, foreign := Load(dir, environment)
	require.Empty(t, foreign)
	return vars
}
