package wire

import (
	"bytes"
	"strings"
)

// scanner looks for values in JSON without decoding it. At anything that is not
// JSON it becomes bad and stays so. What it reads it reads exactly like
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

func (s *scanner) literal(word string) {
	if s.peek(); !bytes.HasPrefix(s.b[s.i:], []byte(word)) {
		s.fail()
		return
	}
	s.i += len(word)
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
