package api

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
)

// term is one condition of Op.Success.
type term struct {
	text        string   // description of the value
	path        []string // keys; empty for the whole response
	kind        byte     // first character of the value in JSON
	placeholder string   // its value is expected; empty for any value
	optional    bool     // the value may be missing
	alternative *term    // accepted instead; may be nil
}

// terms parses the Success of an operation.
func terms(success string) (list []term) {
	if strings.Contains(success, "/") {
		return nil
	}
	for text := range strings.FieldsSeq(success) {
		var t *term
		words, _, _ := strings.Cut(strings.ReplaceAll(text, "=", "|"), "|")
		words = cmp.Or(strings.NewReplacer("[]", "", "?", "", "{}", "").Replace(words), "object")
		for alternative := range strings.SplitSeq(text, "|") {
			t = &term{text: words, kind: '"', alternative: t}
			name, want, _ := strings.Cut(alternative, "=")
			t.placeholder = strings.Trim(want, "{}")
			name, t.optional = strings.CutSuffix(name, "?")
			for suffix, kind := range map[string]byte{"[]": '[', "{}": '{'} {
				if before, ok := strings.CutSuffix(name, suffix); ok {
					t.kind, name = kind, before
				}
			}
			name = strings.ReplaceAll(name, "[]", ".[]")
			t.path = strings.FieldsFunc(name, func(r rune) bool { return r == '.' })
		}
		list = append(list, *t)
	}
	return list
}

// wantedValue returns the expected value; empty for any.
func (t *term) wantedValue(req *Request) string {
	if t.placeholder == "new" {
		return req.New
	}
	return req.Op.placeholder(t.placeholder, req.Path)
}

// matches reports whether the decoded response to req meets the condition. Otherwise, have
// is the value that the response contains instead.
func (t *term) matches(req *Request, response reflect.Value) (ok bool, have string) {
	v := lookup(response, t.path)
	if v.Kind() == reflect.String {
		have = v.String()
	}
	switch t.kind {
	case '"':
		want := t.wantedValue(req)
		ok = have != "" && (want == "" || have == want)
	case '[':
		ok = v.Kind() == reflect.Slice && !v.IsNil()
	case '{':
		ok = v.Kind() == reflect.Map || v.Kind() == reflect.Struct && !v.IsZero()
	}
	if !ok && t.alternative != nil {
		return t.alternative.matches(req, response)
	}
	return ok || t.optional && have == "", have
}

// lookup returns the value at a path of keys in a decoded response, or the zero Value. The
// key "[]" is the first element of a list.
func lookup(v reflect.Value, path []string) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if len(path) == 0 {
		return v
	}
	key, rest := path[0], path[1:]
	switch v.Kind() {
	case reflect.Map:
		return lookup(v.MapIndex(reflect.ValueOf(key)), rest)
	case reflect.Slice:
		if key == "[]" && v.Len() > 0 {
			return lookup(v.Index(0), rest)
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == key {
				return lookup(value, rest)
			}
		}
	}
	return reflect.Value{}
}

// accept decodes a response with a successful status into out, if out is not nil. It returns
// an error if the response is not the API's. It checks the conditions on the decoded value,
// so that a repeated key, or a key in another case, has only one meaning.
func (req *Request) accept(resp *http.Response, body []byte, out any) error {
	if len(body) == 0 && req.Op.Bare && resp.StatusCode != http.StatusOK {
		return nil
	}
	if out == nil {
		out = new(any)
	}
	if err := decode(body, out); err != nil {
		return foreignError(resp, body, err)
	}
	for _, t := range req.Op.terms {
		if ok, have := t.matches(req, reflect.ValueOf(out)); !ok {
			reason := "it has no " + t.text
			if have != "" {
				reason = fmt.Sprintf("its %s is %q", t.text, have)
				if want := t.wantedValue(req); want != "" {
					reason += fmt.Sprintf(" and not %q", want)
				}
			}
			return foreignError(resp, body, errors.New(reason))
		}
	}
	return nil
}

// acceptStream is like accept for a response that is returned unread.
func (op *Op) acceptStream(resp *http.Response) error {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return foreignError(resp, nil, fmt.Errorf("it is compressed with %q, which was not requested", encoding))
	}
	got := resp.Header.Get("Content-Type")
	if media, _, _ := mime.ParseMediaType(got); op.Stream() && media != op.Success {
		return &ContentTypeError{Got: got, Want: op.Success}
	}
	return nil
}

// ForeignError reports a response that is not the API's. It usually comes from a proxy or
// gateway between this program and the API.
type ForeignError struct {
	Err         error // why it is not the API's
	ContentType string
	Text        string // its first line, without markup
}

func (e *ForeignError) Error() string {
	s := "the response is not the API's: " + e.Err.Error()
	if e.ContentType != "" {
		s += ", content type " + e.ContentType
	}
	if e.Text != "" {
		s += ", " + redact.Printable(e.Text)
	}
	return s
}

// Unwrap returns the cause.
func (e *ForeignError) Unwrap() error { return e.Err }

func foreignError(resp *http.Response, body []byte, err error) error {
	e := &ForeignError{Err: err, ContentType: resp.Header.Get("Content-Type")}
	if strings.HasPrefix(e.ContentType, "text/") {
		e.Text = firstLine(string(body[:min(len(body), maxErrorBody)]))
	}
	return e
}

// firstLine returns the start of the first line of a page that contains text.
func firstLine(page string) string {
	const most = 100
	for line := range strings.Lines(page) {
		var b strings.Builder
		for part := range strings.SplitSeq(line, "<") {
			if _, text, ok := strings.Cut(part, ">"); ok {
				part = text
			}
			b.WriteString(part + " ")
		}
		if text := strings.Join(strings.Fields(b.String()), " "); text != "" {
			if len(text) > most {
				text = strings.ToValidUTF8(text[:most], "") + "…"
			}
			return text
		}
	}
	return ""
}
