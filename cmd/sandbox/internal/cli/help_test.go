package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// officialPage is the content of a help page of the official CLI, version 4.5.0.
type officialPage struct {
	Path     []string
	Args     []string
	Commands []struct {
		Name    string
		Aliases []string
	}
	Options []struct {
		Name, Short, Kind, Default, Alias string
		Repeatable                        bool
	}
}

// testTree returns the command tree.
func testTree(t *testing.T) *cobra.Command {
	t.Helper()
	a := newApp(nil)
	a.screen.SetStreams("never")
	root := a.rootCommand()
	return root
}

// TestHelpPages compares the commands with all help pages of the official CLI: no
// command, alias, argument, option, type or default is missing.
func TestHelpPages(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/help.json")
	require.NoError(t, err)
	var pages []officialPage
	require.NoError(t, json.Unmarshal(data, &pages))
	require.Len(t, pages, 46)
	root := testTree(t)
	for _, p := range pages {
		t.Run(strings.Join(append([]string{"sandbox"}, p.Path...), " "), func(t *testing.T) {
			cmd := root
			for _, word := range p.Path {
				cmd = line.Child(cmd, word)
				require.NotNil(t, cmd, word)
			}
			for _, c := range p.Commands {
				sub := line.Child(cmd, c.Name)
				if !assert.NotNil(t, sub, c.Name) {
					continue
				}
				assert.Equal(t, c.Name, sub.Name())
				for _, alias := range c.Aliases {
					assert.True(t, sub.HasAlias(alias), "%s %s", c.Name, alias)
				}
			}
			for _, arg := range p.Args {
				assert.Contains(t, cmd.Use, strings.Trim(arg, "[]."), "arguments of %s", cmd.CommandPath())
			}
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { flags.AddFlag(f) })
			cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { flags.AddFlag(f) })
			for _, o := range p.Options {
				f := flags.Lookup(o.Name)
				if !assert.NotNil(t, f, "--%s", o.Name) {
					continue
				}
				short := f.Shorthand
				if cmd.Name() == "run" && o.Name == "tty" {
					got, err := reading(t, "run", "-"+o.Short, "true")
					require.NoError(t, err)
					assert.Equal(t, "run --tty=true -- true", got)
					short = o.Short
				}
				assert.Equal(t, o.Short, short, "short of --%s", o.Name)
				assert.Equal(t, o.Kind == "", f.NoOptDefVal != "", "whether --%s takes a value", o.Name)
				if o.Kind != "" {
					assert.Equal(t, o.Kind, f.Value.Type(), "type of --%s", o.Name)
				}
				if o.Default != "" {
					assert.Equal(t, o.Default, f.DefValue, "default of --%s", o.Name)
				}
				if o.Alias != "" {
					assert.Equal(t, f.Name, string(cmd.Root().GlobalNormalizationFunc()(nil, o.Alias)))
				}
				_, repeatable := f.Value.(pflag.SliceValue)
				if o.Kind != "" && cmd.Root().PersistentFlags().Lookup(o.Name) == nil {
					assert.True(t, repeatable || !o.Repeatable, "--%s may be given several times", o.Name)
				}
			}
		})
	}
}
