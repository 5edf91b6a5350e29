package wire

import (
	"bytes"
	"strings"
)

// scanner reads JSON of a known form, several times as fast as encoding/json,
// which uses reflection. It supports only what is usual: at anything else it
// becomes bad and stays so, and the caller uses encoding/json to decode, or
// refuse, the text from its beginning. What it reads it reads exactly like
// encoding/json.
type scanner struct {
	b       []byte
	i       int
	bad     bool
	scratch []byte
}

// maxDepth limits the nesting of values that are skipped.
const maxDepth = 100

// peek returns the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// eat skips c, which must come next.
func (s *scanner) eat(c byte) {
	if s.peek() != c {
		s.fail()
		return
	}
	s.i++
}

// fail makes s bad. Nothing follows.
func (s *scanner) fail() {
	s.bad = true
	s.i = len(s.b)
}

// done reports whether everything was read successfully.
func (s *scanner) done() bool { return s.peek() == 0 && s.i == len(s.b) && !s.bad }

// more reports whether a list that ends with end continues.
func (s *scanner) more(first bool, end byte) bool {
	switch c := s.peek(); {
	case c == end:
		s.i++
		return false
	case first:
		return !s.bad
	}
	s.eat(',')
	return !s.bad
}

// object reads an object with the given fields, in their usual order. For each
// field that is not null it calls read with its index, which reads its value.
// Other fields are skipped.
func (s *scanner) object(fields []string, read func(field int)) {
	var seen uint64
	next := 0
	s.eat('{')
	for first := true; s.more(first, '}'); first = false {
		key := s.text()
		field := -1
		for range fields {
			if next == len(fields) {
				next = 0
			}
			if next++; fields[next-1] == string(key) {
				field = next - 1
				break
			}
		}
		switch {
		case field < 0 && similar(fields, key), field >= 0 && seen&(1<<field) != 0:
			// These are left to encoding/json.
			s.fail()
			return
		case field >= 0:
			seen |= 1 << field
		}
		s.eat(':')
		switch {
		case s.peek() == 'n':
			s.literal("null")
		case field < 0:
			s.skip(maxDepth)
		default:
			read(field)
		}
	}
}

// similar reports whether key equals one of fields except for case.
func similar(fields []string, key []byte) bool {
	for _, f := range fields {
		if strings.EqualFold(f, string(key)) {
			return true
		}
	}
	return false
}

// array reads an array, calling read for each element.
func (s *scanner) array(read func()) {
	s.eat('[')
	for first := true; s.more(first, ']'); first = false {
		if s.peek() == 'n' {
			s.fail()
			return
		}
		read()
	}
}

// text reads a string, which is valid until the next one is read.
func (s *scanner) text() []byte {
	s.eat('"')
	data, n, st := decodeString(&s.scratch, s.b[s.i:])
	if st != stringClosed {
		s.fail()
		return nil
	}
	s.i += n
	return data
}

// string reads a string, which is likely to be the given one.
func (s *scanner) string(likely string) string {
	data := s.text()
	if string(data) == likely {
		return likely
	}
	return string(data)
}

func (s *scanner) bool() bool {
	if s.peek() == 't' {
		s.literal("true")
		return !s.bad
	}
	s.literal("false")
	return false
}

func (s *scanner) literal(word string) {
	if s.peek(); !bytes.HasPrefix(s.b[s.i:], []byte(word)) {
		s.fail()
		return
	}
	s.i += len(word)
}

// int reads an integer of up to 18 digits.
func (s *scanner) int() int64 {
	token := s.number()
	digits, negative := bytes.CutPrefix(token, []byte("-"))
	if len(digits) == 0 || len(digits) > 18 {
		s.fail()
		return 0
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			s.fail()
			return 0
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		return -n
	}
	return n
}

// count reads an integer that fits in an int.
func (s *scanner) count() int {
	n := s.int()
	if int64(int(n)) != n {
		s.fail()
	}
	return int(n)
}

// number reads a number and returns its text.
func (s *scanner) number() []byte {
	if s.peek() == 0 {
		s.fail()
		return nil
	}
	start := s.i
	digits := func() (n int) {
		for ; s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9'; s.i++ {
			n++
		}
		return n
	}
	sign := func(signs string) {
		if s.i < len(s.b) && strings.IndexByte(signs, s.b[s.i]) >= 0 {
			s.i++
		}
	}
	sign("-")
	whole := s.i
	if n := digits(); n == 0 || n > 1 && s.b[whole] == '0' {
		s.fail()
		return nil
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		if s.i++; digits() == 0 {
			s.fail()
			return nil
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if sign("+-"); digits() == 0 {
			s.fail()
			return nil
		}
	}
	return s.b[start:s.i]
}

// value skips any value and returns its text.
func (s *scanner) value() []byte {
	s.peek()
	start := s.i
	s.skip(maxDepth)
	return s.b[start:s.i]
}

func (s *scanner) skip(depth int) {
	if depth == 0 {
		s.fail()
		return
	}
	switch s.peek() {
	case '"':
		s.text()
	case '{':
		s.i++
		for first := true; s.more(first, '}'); first = false {
			s.text()
			s.eat(':')
			s.skip(depth - 1)
		}
	case '[':
		s.i++
		for first := true; s.more(first, ']'); first = false {
			s.skip(depth - 1)
		}
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		s.number()
	}
}

// find skips to the value of a key of the object that comes next.
func (s *scanner) find(key string) bool {
	s.eat('{')
	for first := true; s.more(first, '}'); first = false {
		found := string(s.text()) == key
		s.eat(':')
		if found {
			return !s.bad
		}
		s.skip(maxDepth)
	}
	return false
}

// Find looks for the value at a path of keys, and returns the byte with which it
// begins, 0 if there is none, and its text if it is a string. The key "[]" is the
// first element of a list. It reads no further than that: whether the rest of
// data is JSON is not its business.
func Find(data []byte, keys ...string) (kind byte, text string) {
	s := scanner{b: data}
	for _, key := range keys {
		if key == "[]" {
			s.eat('[')
			continue
		}
		if !s.find(key) {
			return 0, ""
		}
	}
	if kind = s.peek(); kind == '"' {
		text = string(s.text())
	}
	if s.bad {
		return 0, ""
	}
	return kind, text
}
