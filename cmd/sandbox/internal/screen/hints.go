package screen

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// These marks enclose a command line of this program in a message. No other text can
// contain them: Lines escapes control characters.
const (
	tryMark = "\x01"
	tryEnd  = "\x02"
)

// Try returns a command line of this program for a hint. The format has no program name,
// and words for the user to fill in are in capitals. Filled adds the options that name the
// account of the current command line, so that the line works when it is pasted. Every
// command line in a hint is made by Try.
func Try(format string, args ...any) string {
	return tryMark + fmt.Sprintf(format, args...) + tryEnd
}

// tryStart matches the start of a command line of Try. Lines that begin with local or
// --local already name their account.
var tryStart = regexp.MustCompile(tryMark + `(local |--local )?`)

// Filled completes the lines of Try in a text.
func (s *Screen) Filled(text string) string {
	if !strings.Contains(text, tryMark) {
		return text
	}
	text = tryStart.ReplaceAllStringFunc(text, func(found string) string {
		if own := strings.TrimPrefix(found, tryMark); own != "" {
			return "sandbox " + own
		}
		return line.ShellWords(append([]string{"sandbox"}, s.AccountWords()...)) + " "
	})
	return strings.ReplaceAll(text, tryEnd, "")
}
