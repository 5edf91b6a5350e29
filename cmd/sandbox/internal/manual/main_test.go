package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/cli"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestManual wants each command to have a page, with all of its arguments and
// options, that is right in the language of man(7).
func TestManual(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man")
	require.NoError(t, write(dir))
	page := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name+".1"))
		require.NoError(t, err)
		return strings.NewReplacer(`\-`, "-", `\fB`, "", `\fP`, "", `\&`, "").Replace(string(data))
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		text := page(name)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			assert.Equal(t, !f.Hidden, strings.Contains(text, "--"+f.Name), "%s %s", name, f.Name)
		})
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				assert.Contains(t, text, name+"-"+c.Name()+"(1)")
				visit(c)
			}
		}
	}
	visit(cli.Manual())
	for _, want := range []string{
		"sandbox copy <src> <dst>", "Aliases: cp", ".SH ARGUMENTS", "Where to: a path here, or NAME:PATH in a sandbox", "--exclude=pattern", "such as node_modules or **/*.log",
	} {
		assert.Contains(t, page("sandbox-copy"), want)
	}
	assert.Contains(t, page("sandbox-list"), ".SH WITH --JSON")
	if _, err := exec.LookPath("groff"); err != nil {
		needs.Missing(t, "groff in PATH")
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	require.NoError(t, err)
	out, err := exec.Command("groff", append([]string{"-man", "-Tutf8", "-k", "-ww", "-z"}, pages...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Empty(t, string(out))
}
