package screen

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// A line of this program in a text stands between these marks, which no text of
// anybody else has on its way to a terminal: see Lines.
const (
	tryMark = "\x01"
	tryEnd  = "\x02"
)

// Try is a line of this program for a hint, without the program's name. What is to
// be filled in is in capitals. Before the hint is shown, it gets the options that
// name the account of the present line, so that it works when it is pasted. No
// other function makes one.
func Try(format string, args ...any) string {
	return tryMark + fmt.Sprintf(format, args...) + tryEnd
}

// tried is the beginning of such a line. Some say themselves whose they are.
var tried = regexp.MustCompile(tryMark + `(local |--local )?`)

// Filled writes out what Try has made.
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
