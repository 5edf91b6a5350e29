package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionView struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

type versionCommand struct{ place }

func (c *versionCommand) command() *command {
	return &command{name: "version", title: titleTools, short: "Write the version", example: "version", account: noAccount, doc: versionView{}, run: c.run}
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
	if c.screen.opts.structured() {
		return c.screen.print(output{doc: v, names: []string{v.Version}})
	}
	_, err := fmt.Fprintln(c.screen.out, v.Version)
	return err
}
