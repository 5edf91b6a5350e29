package cli

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// A line of this program in a text stands between these marks, which no text of
// anybody else has on its way to a terminal: see lines.
const (
	tryMark = "\x01"
	tryEnd  = "\x02"
)

// try is a line of this program for a hint, without the program's name. What is to
// be filled in is in capitals. Before the hint is shown, it gets the options that
// name the account of the present line, so that it works when it is pasted. No
// other function makes one.
func try(format string, args ...any) string {
	return tryMark + fmt.Sprintf(format, args...) + tryEnd
}

// allOptions is the page of the options of all commands.
const allOptions = "options"

// What pages end with. For help the account does not matter.
const (
	moreOptions  = "Options of all commands, such as --local and --json: sandbox help " + allOptions
	moreCommands = "All commands: sandbox help --all"
)

// moreAbout names a command's page.
func moreAbout(cmd *cobra.Command) string {
	return "for more information, try '" + cmd.CommandPath() + " --help'"
}

// account are the options that name the account of the present line. A token is
// never shown.
func (s *stdio) account() (words []string) {
	o := &s.opts
	if o.local {
		words = append(words, "--local")
	}
	for _, option := range [][2]string{{"--api-url", o.apiURL}, {"--scope", o.scope}, {"--project", o.project}} {
		if option[1] != "" {
			words = append(words, option[0]+"="+option[1])
		}
	}
	return words
}

// tried is the beginning of such a line. Some say themselves whose they are.
var tried = regexp.MustCompile(tryMark + `(local |--local )?`)

// filled writes out what try has made.
func (s *stdio) filled(text string) string {
	if !strings.Contains(text, tryMark) {
		return text
	}
	text = tried.ReplaceAllStringFunc(text, func(found string) string {
		if own := strings.TrimPrefix(found, tryMark); own != "" {
			return "sandbox " + own
		}
		return shellWords(append([]string{"sandbox"}, s.account()...)) + " "
	})
	return strings.ReplaceAll(text, tryEnd, "")
}
