package agent

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
)

type editInput struct {
	Path location `json:"path" is:"the file"`
	Old  string   `json:"old_string,omitempty" is:"the text to replace, exactly as it is in the file"`
	New  string   `json:"new_string,omitempty" is:"what to put in its place; nothing by default"`
	All  bool     `json:"replace_all,omitempty" is:"whether to replace it wherever it is"`
}

func editFile(ctx context.Context, c *call, in *editInput) (Result, error) {
	name, err := c.resolvePath(ctx, in.Path)
	if err != nil {
		return Result{}, err
	}
	c.state.editing.Lock()
	defer c.state.editing.Unlock()
	info, err := c.statReadable(ctx, name)
	if err != nil {
		return Result{}, err
	}
	if info != nil && info.IsDir() {
		return Result{}, modelErrorf("%s is a directory.", oneLine(in.Path.given))
	}
	data, err := c.readForEdit(ctx, name)
	if err != nil {
		return Result{}, err
	}
	edited, summary, err := in.apply(string(data))
	if err != nil {
		return Result{}, err
	}
	if int64(len(edited)) > c.limits().FileBytes {
		return Result{}, modelErrorf("The file would have %d bytes; at most %d are written.", len(edited), c.limits().FileBytes)
	}
	mode := fileMode
	if info != nil {
		mode = info.Mode().Perm()
	}
	if err := c.writeWhole(ctx, name, strings.NewReader(edited), mode); err != nil {
		return Result{}, err
	}
	return Result{Text: summary + " in " + oneLine(in.Path.given) + "."}, nil
}

// readForEdit reads a file that is about to be edited.
func (c *call) readForEdit(ctx context.Context, name string) ([]byte, error) {
	r, err := c.sb.FS().Open(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, c.limits().FileBytes+1))
	if err == nil && int64(len(data)) > c.limits().FileBytes {
		err = modelErrorf("The file has more than %d bytes: use programs of the sandbox.", c.limits().FileBytes)
	}
	return data, err
}

// apply replaces old_string by new_string in a text. If neither contains a CR, a line end in
// old_string matches both LF and CR LF, and new_string gets the line ends of the text that it
// replaces. summary describes the edit to the model.
func (in *editInput) apply(text string) (edited, summary string, err error) {
	if in.Old == "" {
		return "", "", modelErrorf("old_string is empty. Use write_file for a new file.")
	}
	if in.Old == in.New {
		return "", "", modelErrorf("old_string and new_string are the same.")
	}
	exact := strings.Contains(in.Old+in.New, "\r")
	found := findPiece(text, in.Old, exact)
	switch {
	case len(found) == 0:
		return "", "", modelErrorf("old_string is not in the file. %s", describeMismatch(text, in.Old))
	case len(found) > 1 && !in.All:
		var lines []string
		for _, f := range found[:min(len(found), 5)] {
			lines = append(lines, fmt.Sprint(1+strings.Count(text[:f[0]], "\n")))
		}
		return "", "", modelErrorf("old_string is in the file %d times, first in the lines %s. Give more of the lines around it, or set replace_all.", len(found), strings.Join(lines, ", "))
	}
	var b strings.Builder
	at := 0
	for _, f := range found {
		b.WriteString(text[at:f[0]])
		if exact {
			b.WriteString(in.New)
		} else {
			b.WriteString(strings.ReplaceAll(in.New, "\n", lineEnd(text, f[0], f[1])))
		}
		at = f[1]
	}
	b.WriteString(text[at:])
	if len(found) > 1 {
		return b.String(), fmt.Sprintf("Replaced %d places", len(found)), nil
	}
	return b.String(), "Replaced one place", nil
}

// findPiece returns the start and end of each occurrence of a piece in a text. If exact is
// false, LF in the piece also matches CR LF.
func findPiece(text, piece string, exact bool) (found [][2]int) {
	var dropped []int // offsets in plain at which a CR was removed
	plain := text
	if !exact && strings.Contains(piece, "\n") && strings.Contains(text, "\r\n") {
		for at := 0; ; {
			i := strings.Index(text[at:], "\r\n")
			if i < 0 {
				break
			}
			at += i
			dropped = append(dropped, at-len(dropped))
			at += len("\r\n")
		}
		plain = strings.ReplaceAll(text, "\r\n", "\n")
	}
	inText := func(at int) int {
		n, _ := slices.BinarySearch(dropped, at)
		return at + n
	}
	for at := 0; ; {
		i := strings.Index(plain[at:], piece)
		if i < 0 {
			return found
		}
		found = append(found, [2]int{inText(at + i), inText(at + i + len(piece))})
		at += i + len(piece)
	}
}

// lineEnd returns the first line end in a range of a text. If the range contains none, it
// returns the last one before the range.
func lineEnd(text string, from, to int) string {
	i := strings.IndexByte(text[from:], '\n')
	if i >= 0 {
		i += from
	} else {
		i = strings.LastIndexByte(text[:to], '\n')
	}
	if i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// describeMismatch tells the model why a piece does not occur in a text. It looks for the best
// match and shows the first line that differs.
func describeMismatch(text, piece string) string {
	const again = " Read it again, and give the text exactly, with its spaces."
	plain := strings.ReplaceAll(text, "\r\n", "\n")
	if !strings.Contains(plain, "\n") && strings.Contains(plain, "\r") {
		return "The file's lines end in CR alone: give \\r where a line ends." + again
	}
	if strings.Contains(piece, "\r") && len(findPiece(plain, strings.ReplaceAll(piece, "\r\n", "\n"), true)) > 0 {
		return "Its line ends differ from the file's: give them without \\r."
	}
	if strings.HasSuffix(piece, "\n") && strings.HasSuffix(plain, strings.TrimSuffix(piece, "\n")) {
		return "The file ends without a line end: leave the last one out."
	}
	have, want := strings.Split(plain, "\n"), strings.Split(strings.ReplaceAll(piece, "\r\n", "\n"), "\n")
	best, line0 := 0, 0 // the length of the best match in lines, and its first line
	steps := 0
	for i := range have {
		n := 0
		for n < len(want) && i+n < len(have) && strings.TrimSpace(have[i+n]) == strings.TrimSpace(want[n]) {
			n++
		}
		const enough = 10_000_000
		if steps += n + 1; steps > enough {
			break // a file of equal lines would take too long
		}
		if n > best && strings.TrimSpace(strings.Join(want[:n], "")) != "" {
			best, line0 = n, i
		}
	}
	if best == 0 {
		return "Its first line does not occur either." + again
	}
	for i := range best {
		if have[line0+i] != want[i] && !(i == 0 && strings.HasSuffix(have[line0], want[0])) {
			return fmt.Sprintf("Line %d of the file has other spaces than line %d of old_string:\n%s", line0+i+1, i+1, wrapData(oneLine(have[line0+i])))
		}
	}
	if line0+best >= len(have) {
		return fmt.Sprintf("Its first %d lines are the file's last ones, and the file ends there.", best) + again
	}
	return fmt.Sprintf("From line %d of the file, %d of its lines match. Then the file has, in line %d:\n%s", line0+1, best, line0+best+1, wrapData(oneLine(have[line0+best])))
}
