package line

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// ShellWords writes a command line as a user would type it.
func ShellWords(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = ShellWord(w)
	}
	return strings.Join(out, " ")
}

// ShellWord quotes a word for a shell, if necessary.
func ShellWord(w string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./-_", r)
	}
	if w != "" && strings.IndexFunc(w, func(r rune) bool { return !safe(r) }) < 0 {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// Plural returns a count with its noun.
func Plural(n int, noun, nouns string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + nouns
}
