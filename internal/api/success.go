package api

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
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
		words = strings.NewReplacer("[]", "", "?", "").Replace(words)
		if words == "{}" {
			words = "object"
		}
		for alternative := range strings.SplitSeq(text, "|") {
			t = &term{text: words, kind: '"', or: t}
			name, want, _ := strings.Cut(alternative, "=")
			if t.want = strings.Trim(want, "{}"); t.want == "null" {
				t.kind, t.want = 'n', ""
			}
			name, t.may = strings.CutSuffix(name, "?")
			switch before, isList := strings.CutSuffix(name, "[]"); {
			case name == "{}":
				t.kind, name = '{', ""
			case isList:
				t.kind, name = '[', before
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

// holds reports whether a response to req meets the condition, and otherwise
// the value that it has instead.
func (t *term) holds(req *Request, body []byte) (ok bool, have string) {
	kind, have := wire.Find(body, t.path...)
	want := t.wanted(req)
	switch {
	case kind == t.kind && (kind != '"' || have != "" && (want == "" || have == want)):
		return true, have
	case t.or != nil:
		return t.or.holds(req, body)
	}
	return t.may && have == "", have
}

// read reads a response whose status is that of a success, and reports why it is
// not the API's, or decodes it into out, if it is not nil. In kept is what it has
// read: of a listing the beginning.
func (req *Request) read(resp *http.Response, in *wire.Reader, kept *bytes.Buffer, out any) error {
	list, name, ok := req.listOf(out)
	if !ok {
		if _, err := kept.ReadFrom(in); err != nil {
			return err
		}
		return req.accept(resp, kept.Bytes(), out)
	}
	items, rest, err := readList(in, list, name)
	if in.Err != nil {
		return in.Err
	}
	if errors.Is(err, errNotAList) {
		err = errors.New("it has no " + req.Op.terms[0].text)
	}
	switch err {
	case nil:
	case wire.ErrTooLarge, wire.ErrTooMany:
		return err
	default:
		return foreign(resp, kept.Bytes(), err)
	}
	if err := req.accept(resp, rest, out); err != nil {
		return err
	}
	list.Set(items)
	return nil
}

// beginning keeps the first bytes that are written to it.
type beginning struct{ *bytes.Buffer }

func (b *beginning) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), maxErrorBody-b.Len())])
	return len(p), nil
}

// accept reports why a response whose status is that of a success is not the
// API's, and decodes it into out, if it is not nil.
func (req *Request) accept(resp *http.Response, body []byte, out any) error {
	if len(body) == 0 && req.Op.Bare && resp.StatusCode != http.StatusOK {
		return nil
	}
	for _, t := range req.Op.terms {
		if ok, have := t.holds(req, body); !ok {
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
	if err := decode(body, out); err != nil {
		return foreign(resp, body, err)
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
