package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

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
