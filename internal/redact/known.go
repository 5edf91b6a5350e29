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
)

// minSecret is the minimum length of a secret. Shorter strings occur in ordinary texts.
const minSecret = 8

// maxKnown limits how many tokens are remembered. A request with an old token has ended long
// before that many newer tokens were sent.
const maxKnown = 16

// Known is the set of secrets that a client knows: the tokens that it has sent and, after With,
// the secrets of a request. The zero value is empty. It is safe for concurrent use.
type Known struct {
	list atomic.Pointer[secretList]
}

type secretList struct {
	secrets  []string // latest first
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
		if k.list.CompareAndSwap(old, newSecretList(secrets)) {
			return
		}
	}
}

// With returns a set that also contains these secrets. It does not change k, because a
// request's secrets do not concern other requests.
func (k *Known) With(secrets ...string) *Known {
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return len(s) < minSecret })
	if len(secrets) == 0 {
		return k
	}
	if old := k.list.Load(); old != nil {
		secrets = append(secrets, old.secrets...)
	}
	more := &Known{}
	more.list.Store(newSecretList(secrets))
	return more
}

func newSecretList(secrets []string) *secretList {
	var all []string
	for _, s := range secrets {
		// A secret may also appear escaped in a query, a path or a quoted string, and in
		// JSON within a JSON string.
		quoted, once := strconv.Quote(s), jsonEscape(s)
		all = append(all, s, url.QueryEscape(s), url.PathEscape(s), quoted[1:len(quoted)-1], once, jsonEscape(once))
	}
	// If one form is a prefix of another, replace the longer one first.
	slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(all))
	for _, form := range all {
		pairs = append(pairs, form, Mark)
	}
	return &secretList{secrets, strings.NewReplacer(pairs...)}
}

// jsonEscape returns text as in a JSON string, without the quotes.
func jsonEscape(text string) string {
	quoted, _ := json.Marshal(text) // never fails for a string
	return string(quoted[1 : len(quoted)-1])
}

// Text replaces the secrets in text by Mark.
func (k *Known) Text(text string) string {
	list := k.list.Load()
	if list == nil || text == "" {
		return text
	}
	return list.replacer.Replace(text)
}

// Header returns h, or a redacted copy if its values contain secrets.
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

// Error returns err if its text contains neither secrets nor control characters. Otherwise it
// returns a redacted error that matches the same errors. If err contains a secret, the redacted
// error does not unwrap to it, because the fields of err contain the secret too.
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
