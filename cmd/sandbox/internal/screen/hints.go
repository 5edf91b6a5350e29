package screen

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// A command line of this program in a text stands between these marks. Lines removes them
// from all other texts before they reach a terminal.
const (
	tryMark = "\x01"
	tryEnd  = "\x02"
)

// Try returns a command line of this program for a hint, without the program's name.
// Placeholders are in capitals. When the hint is shown, the line gets this command line's
// options that name the account, so that it works when it is pasted. No other function
// creates one.
func Try(format string, args ...any) string {
	return tryMark + fmt.Sprintf(format, args...) + tryEnd
}

// tried matches the start of such a line. Some lines already name their account.
var tried = regexp.MustCompile(tryMark + `(local |--local )?`)

// Filled completes the lines of Try in a text.
func (s *Screen) Filled(text string) string {
	if !strings.Contains(text, tryMark) {
		return text
	}
	text = tried.ReplaceAllStringFunc(text, func(found string) string {
		if own := strings.TrimPrefix(found, tryMark); own != "" {
			return "sandbox " + own
		}
		return line.ShellWords(append([]string{"sandbox"}, s.AccountWords()...)) + " "
	})
	return strings.ReplaceAll(text, tryEnd, "")
}
