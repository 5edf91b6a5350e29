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
	text string   // what is to be there, in words
	path []string // of keys; none for the whole response
	kind byte     // with which the value begins
	want string   // the placeholder whose value it is; empty for any
	may  bool     // it may be missing
	or   *term    // an alternative
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
			t = &term{text: words, kind: '"', or: t}
			name, want, _ := strings.Cut(alternative, "=")
			t.want = strings.Trim(want, "{}")
			name, t.may = strings.CutSuffix(name, "?")
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

// wanted returns the value of the placeholder; empty if there is none.
func (t *term) wanted(req *Request) string {
	if t.want == "new" {
		return req.New
	}
	return req.Op.placeholder(t.want, req.Path)
}

// holds reports whether a response to req, as decoded, meets the condition, and
// otherwise the value that it has instead.
func (t *term) holds(req *Request, response reflect.Value) (ok bool, have string) {
	v := find(response, t.path)
	if v.Kind() == reflect.String {
		have = v.String()
	}
	switch t.kind {
	case '"':
		want := t.wanted(req)
		ok = have != "" && (want == "" || have == want)
	case '[':
		ok = v.Kind() == reflect.Slice && !v.IsNil()
	case '{':
		ok = v.Kind() == reflect.Map || v.Kind() == reflect.Struct && !v.IsZero()
	}
	if !ok && t.or != nil {
		return t.or.holds(req, response)
	}
	return ok || t.may && have == "", have
}

// find returns the value at a path of keys of a decoded response; the zero Value if
// there is none. The key "[]" is the first element of a list.
func find(v reflect.Value, path []string) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if len(path) == 0 {
		return v
	}
	key, rest := path[0], path[1:]
	switch v.Kind() {
	case reflect.Map:
		return find(v.MapIndex(reflect.ValueOf(key)), rest)
	case reflect.Slice:
		if key == "[]" && v.Len() > 0 {
			return find(v.Index(0), rest)
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == key {
				return find(value, rest)
			}
		}
	}
	return reflect.Value{}
}

// accept decodes a response whose status is that of a success into out, if it is not
// nil, and reports why it is not the API's. The conditions are checked on what was
// decoded: a key that comes twice, or in another case, has one meaning.
func (req *Request) accept(resp *http.Response, body []byte, out any) error {
	if len(body) == 0 && req.Op.Bare && resp.StatusCode != http.StatusOK {
		return nil
	}
	if out == nil {
		out = new(any)
	}
	if err := decode(body, out); err != nil {
		return foreign(resp, body, err)
	}
	for _, t := range req.Op.terms {
		if ok, have := t.holds(req, reflect.ValueOf(out)); !ok {
			why := "it has no " + t.text
			if have != "" {
				why = fmt.Sprintf("its %s is %q", t.text, have)
				if want := t.wanted(req); want != "" {
					why += fmt.Sprintf(" and not %q", want)
				}
			}
			return foreign(resp, body, errors.New(why))
		}
	}
	return nil
}

// acceptStream is like accept for a response that is passed on unread.
func (op *Op) acceptStream(resp *http.Response) error {
	if packed := resp.Header.Get("Content-Encoding"); packed != "" && packed != "identity" {
		return foreign(resp, nil, fmt.Errorf("it is packed with %q, which was not requested", packed))
	}
	got := resp.Header.Get("Content-Type")
	if media, _, _ := mime.ParseMediaType(got); op.Stream() && media != op.Success {
		return &ContentTypeError{Got: got, Want: op.Success}
	}
	return nil
}

// ForeignError reports a response that is not the API's. It is usually the page
// of something between this program and the API.
type ForeignError struct {
	Err         error // what is missing
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

func foreign(resp *http.Response, body []byte, err error) error {
	e := &ForeignError{Err: err, ContentType: resp.Header.Get("Content-Type")}
	if strings.HasPrefix(e.ContentType, "text/") {
		e.Text = firstLine(string(body[:min(len(body), maxErrorBody)]))
	}
	return e
}

// firstLine returns the beginning of the first line of a page that has text.
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
