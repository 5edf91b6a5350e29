package cli

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// argumentTexts say what arguments are, by their name, or by the words of a command
// and the name where it is something else there.
var argumentTexts = map[string]string{
	"<name>":                             "The name of the sandbox",
	"[...name]":                          "More of them",
	"<command>":                          "The program to run",
	"[...args]":                          "Its arguments",
	"<command_id>":                       "The ID of the command, from exec -d or ps",
	"[command_id]":                       "The ID of the command, from exec -d or ps; the one that was started last by default",
	"<snapshot_id>":                      "The ID of a snapshot, which begins with snap_",
	"[...snapshot_id]":                   "More of them",
	"<source>":                           "The name of the sandbox to copy",
	"<src>":                              "What to copy: a path here, or NAME:PATH in a sandbox",
	"<dst>":                              "Where to: a path here, or NAME:PATH in a sandbox",
	"<port>":                             "The port in the sandbox",
	"<[local:]port>":                     "The port in the sandbox, after the one to listen on here if it differs",
	"[...port]":                          "More of them",
	"<num UNIT>":                         "A duration, such as 30m or 1h30m",
	"<COUNT>":                            "A number",
	"<true|false>":                       "Whether it is so",
	"<REGION>":                           "A region, such as sfo1",
	"<REGION,...|none>":                  "Regions, divided by commas",
	"<NETWORK_ID|none>":                  "The ID of the network",
	"<DURATION|none>":                    "A duration, such as 7d",
	"read <path>":                        "The file in the sandbox",
	"write <path>":                       "The file in the sandbox",
	"[agent]":                            "A coding agent to start: claude, codex, fx, opencode or pi",
	"[command...]":                       "The words of the command, or options",
	"[command]":                          "A program to run with the emulator's address in its environment",
	"<bash|zsh|fish|powershell>":         "The shell",
	"drives <name>":                      "The name of the drive",
	"config keep-last-snapshots <COUNT>": "A number from 1 to 10; 0 keeps all",
}

var argument = regexp.MustCompile(`<[^>]+>|\[[^\]]+\]`)

// argumentLines are the arguments of a command, with what they are.
func argumentLines(cmd *cobra.Command) (lines [][2]string) {
	for _, name := range argument.FindAllString(strings.TrimPrefix(cmd.Use, cmd.Name()), -1) {
		words := strings.Fields(cmd.CommandPath())[1:]
		text := argumentTexts[name]
		for n := len(words); n > 0; n-- {
			if own := argumentTexts[strings.Join(words[:n], " ")+" "+name]; own != "" {
				text = own
				break
			}
		}
		lines = append(lines, [2]string{name, text})
	}
	return lines
}
