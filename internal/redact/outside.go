package redact

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// Text from a server, a sandbox or the transport passes through this file
// before it becomes an error or a log record: Known removes secrets, and
// Printable quotes what could control a terminal or forge a line of a log.

// Printable returns text with everything that is not printable escaped as in a
// Go string literal: line breaks, escape sequences, C1 controls, marks that
// change the direction of text, and invalid UTF-8.
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

// minSecret is the minimum length of a secret. Shorter ones are not secrets,
// but words that occur in ordinary texts.
const minSecret = 8

// maxKnown limits how many secrets are remembered. Tokens replace each other; a
// request with an old token has ended long before so many have followed.
const maxKnown = 16

// Known is the set of secrets that a client knows: the tokens that it has sent,
// and, of With, what a request has. The zero value is empty. It is safe for
// concurrent use.
type Known struct {
	list atomic.Pointer[known]
}

type known struct {
	secrets  []string // the latest first
	replacer *strings.Replacer
}

// Knowing returns a Known of these secrets.
func Knowing(secrets ...string) *Known {
	k := &Known{}
	for _, s := range secrets {
		k.Add(s)
	}
	return k
}

// Add remembers a secret.
func (k *Known) Add(secret string) {
	if len(secret) < minSecret {
		return
	}
	for {
		old := k.list.Load()
		var secrets []string
		if old != nil {
			if old.secrets[0] == secret {
				return
			}
			secrets = slices.DeleteFunc(slices.Clone(old.secrets), func(s string) bool { return s == secret })
			secrets = secrets[:min(len(secrets), maxKnown-1)]
		}
		secrets = append([]string{secret}, secrets...)
		if k.list.CompareAndSwap(old, remember(secrets)) {
			return
		}
	}
}

// With returns a set that has these secrets, too. It does not change k: a request
// may have many, which are nothing to other requests.
func (k *Known) With(secrets ...string) *Known {
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return len(s) < minSecret })
	if len(secrets) == 0 {
		return k
	}
	if old := k.list.Load(); old != nil {
		secrets = append(secrets, old.secrets...)
	}
	more := &Known{}
	more.list.Store(remember(secrets))
	return more
}

func remember(secrets []string) *known {
	var all []string
	for _, s := range secrets {
		// A secret may also come back as written in a query, a path or a quoted
		// string, of JSON also where the whole is quoted once more.
		quoted, once := strconv.Quote(s), inJSON(s)
		all = append(all, s, url.QueryEscape(s), url.PathEscape(s), quoted[1:len(quoted)-1], once, inJSON(once))
	}
	// Of two of which one begins the other, nothing must remain of the longer.
	slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(all))
	for _, form := range all {
		pairs = append(pairs, form, Mark)
	}
	return &known{secrets, strings.NewReplacer(pairs...)}
}

// inJSON returns text as it stands between the quotes of JSON.
func inJSON(text string) string {
	quoted, _ := json.Marshal(text) // never fails for a string
	return string(quoted[1 : len(quoted)-1])
}

// Text returns text without the secrets.
func (k *Known) Text(text string) string {
	list := k.list.Load()
	if list == nil || text == "" {
		return text
	}
	return list.replacer.Replace(text)
}

// Header returns h, or a copy without the secrets in its values.
func (k *Known) Header(h http.Header) http.Header {
	copied := false
	for name, values := range h {
		for i, v := range values {
			clean := k.Text(v)
			if clean == v {
				continue
			}
			if !copied {
				h, copied = h.Clone(), true
			}
			h[name][i] = clean
		}
	}
	return h
}

// Error returns an error that shows neither secrets nor control characters: err
// itself if it has none. An error that contained a secret still matches what
// err matches, but does not unwrap to err, whose fields contain the secret.
func (k *Known) Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clean := k.Text(text)
	shown := Printable(clean)
	switch {
	case clean != text:
		return &redactedError{shown, Hide(&err)}
	case shown != text:
		return &printableError{shown, err}
	}
	return err
}

type printableError struct {
	text string
	err  error
}

func (e *printableError) Error() string { return e.text }
func (e *printableError) Unwrap() error { return e.err }

type redactedError struct {
	text string
	err  Hidden[error]
}

func (e *redactedError) Error() string        { return e.text }
func (e *redactedError) Is(target error) bool { return errors.Is(*e.err(), target) }

// Timeout reports whether the error is a timeout, like net.Error.
func (e *redactedError) Timeout() bool {
	var timeout interface{ Timeout() bool }
	return errors.As(*e.err(), &timeout) && timeout.Timeout()
}
