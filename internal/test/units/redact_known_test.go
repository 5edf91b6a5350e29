package units_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/internal/redact"
)

// TestPrintable: Printable escapes the characters that control a terminal or that it does
// not show.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "",
		"plain, with é, 漢 and \"\\\"": "plain, with é, 漢 and \"\\\"",
		"a\nb\tc\r":                   `a\nb\tc\r`,
		"\x1b]52;c;Y\a\x1b[2J":        `\x1b]52;c;Y\a\x1b[2J`,
		"\u009b31m":                   `\u009b31m`,
		"\u202egnp.exe":               `\u202egnp.exe`,
		"a\xff\x80b":                  `a\xff\x80b`,
		"\x00\x7f":                    `\x00\x7f`,
		"\ufffd":                      "\ufffd",
		"\u00a0":                      `\u00a0`,
	} {
		assert.Equal(t, want, redact.Printable(text))
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[31m\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		shown := redact.Printable(text)
		if !utf8.ValidString(shown) || strings.ContainsFunc(shown, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) {
			t.Fatalf("%q became %q", text, shown)
		}
		if again := redact.Printable(shown); again != shown {
			t.Fatalf("%q became %q, and then %q", text, shown, again)
		}
	})
}

func TestKnownSecrets(t *testing.T) {
	var none redact.Known
	assert.Equal(t, "text", none.Text("text"))
	err := errors.New("text")
	assert.Same(t, err, none.Error(err))
	assert.NoError(t, none.Error(nil))

	const secret = `s3cr3t +"/x`
	k := redact.Knowing(secret, "short", "")
	for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), fmt.Sprintf("%q", secret)} {
		clean := k.Text("a " + form + " b")
		assert.Contains(t, clean, redact.Mark)
		assert.NotContains(t, clean, "s3cr3t", form)
	}
	assert.Equal(t, "short", k.Text("short"), "a text this short may be an ordinary word")
	header := http.Header{"A": {"x", secret}, "B": {"y"}}
	assert.Equal(t, http.Header{"A": {"x", redact.Mark}, "B": {"y"}}, k.Header(header))
	assert.Equal(t, secret, header["A"][1], "the caller's header is unchanged")

	const known = 16 // the number of tokens that the redactor remembers
	for i := range 3 * known {
		k.Add(fmt.Sprint("another-", i))
	}
	assert.Equal(t, secret, k.Text(secret), "the redactor forgets old secrets")
	assert.Equal(t, redact.Mark, k.Text(fmt.Sprint("another-", 2*known)), "the oldest remembered secret")
	assert.NotEqual(t, redact.Mark, k.Text(fmt.Sprint("another-", 2*known-1)), "the newest forgotten secret")
	assert.Equal(t, redact.Mark, k.Text(fmt.Sprint("another-", 3*known-1)))

	var both sync.WaitGroup
	for i := range 4 {
		both.Go(func() {
			for j := range 100 {
				k.Add(fmt.Sprint("parallel-", i, "-", j))
				assert.Equal(t, "x", k.Text("x"))
			}
		})
	}
	both.Wait()
}

func TestKnownError(t *testing.T) {
	k := redact.Knowing("planted-secret")
	inner := fmt.Errorf("dial \x1b[31m: %w", context.DeadlineExceeded)
	quoted := k.Error(inner)
	assert.Equal(t, `dial \x1b[31m: context deadline exceeded`, quoted.Error())
	assert.ErrorIs(t, quoted, context.DeadlineExceeded)
	assert.Same(t, inner, errors.Unwrap(quoted))

	err := k.Error(&url.Error{Op: "Get", URL: "https://h/planted-secret", Err: context.DeadlineExceeded})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	timeout, ok := err.(interface{ Timeout() bool })
	assert.True(t, ok && timeout.Timeout())
	_, ok = errors.AsType[*url.Error](err)
	assert.False(t, ok, "this error has the secret in a field")
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			assert.NotContains(t, fmt.Sprintf(verb, e), "planted")
			assert.NotContains(t, fmt.Sprintf(verb, struct{ E error }{e}), "planted")
		}
	}
}

func TestPrintedURL(t *testing.T) {
	for address, want := range map[string]string{
		"":                                        "",
		"https://github.com/a/b.git":              "https://github.com/a/b.git",
		"https://SECRET@github.com/a/b.git":       "https://github.com/a/b.git",
		"https://u:SECRET@github.com/a%20b":       "https://github.com/a%20b",
		"https://h/x?token=SECRET":                "https://h/x?REDACTED",
		"https://h/x#SECRET":                      "https://h/x?REDACTED",
		"git@github.com:a/b.git":                  "REDACTED@github.com:a/b.git",
		"SECRET@h:a?SECRET":                       "REDACTED@h:a",
		"ssh://git@h/a":                           "ssh://h/a",
		"https://%zzSECRET":                       "(malformed address)",
		"mailto:SECRET@h":                         "(malformed address)",
		"no scheme SECRET":                        "(malformed address)",
		"https://h/\x1b[31m":                      "(malformed address)",
		"https://u:SECRET@h:8443/a/../b?SECRET=1": "https://h:8443/a/../b?REDACTED",
	} {
		assert.Equal(t, want, redact.URL(address), address)
	}
}

func FuzzURL(f *testing.F) {
	f.Add("github.com", "/a/b.git")
	f.Add("h:1", ":x@y")
	f.Add("@h", "")
	f.Fuzz(func(t *testing.T, host, path string) {
		if strings.Contains(host+path, "SECRET") {
			return
		}
		for _, address := range []string{
			"https://SECRET@" + host + path, "https://u:SECRET@" + host + path, "https://x/" + path + "?t=SECRET", "SECRET@" + host + ":" + path,
		} {
			if shown := redact.URL(address); strings.Contains(shown, "SECRET") && !strings.ContainsAny(host, "/?#\\") && !strings.ContainsAny(path, "?#") {
				t.Errorf("%q shows as %q", address, shown)
			}
		}
	})
}
