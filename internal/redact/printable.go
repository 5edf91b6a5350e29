package redact

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text from a server, a sandbox or the transport passes through Known and Printable before it becomes an
// error or a log record. Known removes secrets, and Printable escapes characters that could
// control a terminal or forge a log line.

// Printable escapes everything in text that is not printable, as in a Go string literal: line
// breaks, escape sequences, C1 controls, bidirectional marks, and invalid UTF-8.
func Printable(text string) string {
	plain := func(r rune) bool { return r == ' ' || unicode.IsPrint(r) && r != utf8.RuneError }
	i := strings.IndexFunc(text, func(r rune) bool { return !plain(r) })
	if i < 0 {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:i])
	for rest := text[i:]; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if plain(r) || r == utf8.RuneError && size > 1 {
			b.WriteString(rest[:size])
		} else {
			quoted := strconv.Quote(rest[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		rest = rest[size:]
	}
	return b.String()
}
