package sandbox_test

import "strings"

// oddNames are names that shells, options and line-based listings get wrong.
var oddNames = []string{
	"with space", " leading", "trailing ", "new\nline", "tab\t", "quote'", `double"`, "pipe|f", "-rf", "--help", "-", ".hidden", "...",
	"$HOME", "`id`", "*", "?", "[a]", "~", "#", "a\\b", "é", "日本語", "emoji🙂", "\u202e", "!", "(", "&", ";", "%s", "a=b", "\x01", "\\x41",
	strings.Repeat("n", 255),
}
