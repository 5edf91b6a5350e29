package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// version is set by the release build.
var version string

// Version returns the version of the program.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "devel"
}

// withVersion adds the option --version, which prints only the number. Cobra's own option
// would make the program a tenth larger: it uses text/template, and then the linker can't
// remove unused methods.
func withVersion(root *cobra.Command) {
	number := root.Flags().BoolP("version", "v", false, "Show the version alone")
	run := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if !*number {
			return run(cmd, args)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), Version())
		return err
	}
}

type versionView struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

type versionCommand struct{ deps }

func (c *versionCommand) command() *line.Command {
	return &line.Command{Name: "version", Title: titleTools, Short: "Write the version", Example: "version", Account: line.NoAccount, Doc: versionView{}, Run: c.run}
}

func (c *versionCommand) run(*cobra.Command, []string) error {
	v := versionView{Version: Version(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	if c.screen.Opts.Structured() {
		return c.screen.Print(screen.Output{Doc: v, Names: []string{v.Version}})
	}
	_, err := fmt.Fprintln(c.screen.Out, v.Version)
	return err
}
