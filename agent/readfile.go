package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

type readFileInput struct {
	Path   location `json:"path" is:"the file; relative to the working directory, or absolute"`
	Offset int      `json:"offset,omitempty" is:"the first line, counted from 1"`
	Limit  int      `json:"limit,omitempty" is:"how many lines; 1000 by default"`
}

func readFile(ctx context.Context, c *call, in *readFileInput) (Result, error) {
	name, err := c.resolvePath(ctx, in.Path)
	if err != nil {
		return Result{}, err
	}
	info, err := c.statReadable(ctx, name)
	if err != nil {
		return Result{}, err
	}
	if info != nil && info.IsDir() {
		return listFiles(ctx, c, &listInput{Path: in.Path})
	}
	r, err := c.sb.FS().Open(ctx, name, nil)
	if err != nil {
		return Result{}, err
	}
	defer r.Close()
	first, limit := max(in.Offset, 1), in.Limit
	if limit <= 0 {
		limit = defaultLines
	}
	return readLines(r, oneLine(in.Path.given), first, limit, c.limits().dataBytes())
}

const byteOrderMark = "\ufeff"

// readLines returns lines of a file as a result of at most size bytes. The first line and the
// maximum number of lines are given. It does not read the file beyond them.
func readLines(file io.Reader, name string, first, limit, size int) (Result, error) {
	r := bufio.NewReaderSize(file, 32<<10)
	if start, err := r.Peek(maxSniffed); err != nil && !errors.Is(err, io.EOF) {
		return Result{}, err
	} else if bytes.IndexByte(start, 0) >= 0 {
		return Result{}, modelErrorf("%s is not a text file. Look at it with programs of the sandbox.", name)
	}
	var b strings.Builder
	number, shown, scanned, crs := 0, 0, 0, 0
	why, note := "", ""
	for why == "" {
		text, length, err := readLine(r, maxScanned-scanned)
		scanned += length
		if errors.Is(err, io.EOF) && length == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return Result{}, err
		}
		number++
		if number < first && scanned < maxScanned {
			continue
		}
		if number == 1 && bytes.HasPrefix(text, []byte(byteOrderMark)) {
			text, length = text[len(byteOrderMark):], length-len(byteOrderMark)
			note = " It begins with a byte order mark, which edits keep."
		}
		cr := 0
		if len(text) == length && bytes.HasSuffix(text, []byte("\r")) && !errors.Is(err, io.EOF) {
			text, length, cr = text[:length-1], length-1, 1
		}
		row, used := visibleHead(text, maxLine)
		if left := length - used; left > 0 {
			row += fmt.Sprintf("[… %d bytes left out …]", left)
		}
		row = fmt.Sprintf("%6d\t%s\n", number, row)
		switch {
		case scanned >= maxScanned:
			why = fmt.Sprintf("No more than %d MiB of a file are read.", maxScanned>>20)
		case shown == limit || b.Len()+len(row) > size:
			why = fmt.Sprintf("There is more: continue with offset %d.", number)
			continue
		}
		b.WriteString(row)
		shown++
		crs += cr
	}
	switch {
	case crs > 0 && crs < shown-1:
		note += " Some lines end in CR LF, others in LF; edits keep those of their place."
	case crs > 0:
		note += " Its lines end in CR LF, which edits keep."
	}
	switch {
	case b.Len() == 0 && why != "":
		return Result{Text: fmt.Sprintf("%s: nothing to show. %s", name, why)}, nil
	case b.Len() == 0:
		return Result{Text: fmt.Sprintf("%s has %d lines: nothing from line %d on.", name, number, first)}, nil
	case why == "":
		why = "This is the end of the file."
	}
	return Result{Text: fmt.Sprintf("%s, lines %d to %d. %s%s\n", name, first, first+shown-1, why, note) + wrapData(b.String())}, nil
}

// readLine reads a line, but stops after size bytes. It returns the first maxLine bytes of the
// line, and the number of bytes that it has read, both without the line end.
func readLine(r *bufio.Reader, size int) (text []byte, length int, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		length += len(piece)
		if room := maxLine - len(text); room > 0 {
			text = append(text, piece[:min(room, len(piece))]...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && length < size:
			continue
		case err == nil:
			length--
			return bytes.TrimSuffix(text, []byte("\n")), length, nil
		case errors.Is(err, bufio.ErrBufferFull):
			return text, length, nil
		}
		return text, length, err
	}
}
