package promises_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// row sets one field of an option struct. It describes the effect in the API's terms,
// independently of our encoder.
type row struct {
	field string
	// value is what the field is set to: a value, or a func(*world) any.
	value any
	// and holds other fields that this one needs. The request that this one is compared
	// with has them as well.
	and map[string]any
	// sent is what the field adds to the body of the request, or with a leading ? to its
	// query. SNAPSHOT stands for world.snapshot.
	sent string
	// at is the request, if it is not the method's.
	at string
	// also holds further requests that the field causes.
	also []string
	// state is the emulator's state of the object, if it differs from sent.
	state string
	// info is the field of the same name in the handle's Info, if it differs from value.
	info any
	// reads replaces info for what is not in Info.
	reads func(*testing.T, *world, any)
	// alone is the reason why the row is not sent to the emulator; empty if it is.
	alone string
}

// hidden is the info of a field that the API does not return.
type hidden struct{}

// method is a method with options.
type method struct {
	name    string
	opts    any    // a pointer to the options of a call without options
	request string // the request that has the options, with SANDBOX and SESSION for world.box
	before  func(*testing.T, *world)
	call    func(*world, any) (any, error)
	rows    []row
	// byDay, if not zero, is the number of rows to test by day: another method, which tests
	// all rows, has the same encoder.
	byDay int
	// silent is set if the result has none of the fields.
	silent bool
	// local holds the fields that are in no request, each with its own test.
	local map[string]func(*testing.T, *world, method)
	// plain is like local, for tests that need no emulator.
	plain map[string]func(*testing.T)
	// held are further fields that are in no request. Other tests set them.
	held []string
	// never are fields that this method does not send, each with the reason.
	never map[string]string
}

// world is an emulator, a client whose requests are recorded, and the objects that options
// refer to.
type world struct {
	ctx      context.Context
	srv      *sandboxtest.Server
	client   *sandbox.Client
	box      *sandbox.Sandbox // the source of a fork, the target of an update
	snapshot string
	cursor   string // of a listing

	mu       sync.Mutex
	via      func(*http.Request) (*http.Response, error)
	requests []request
}

type request struct {
	at     string // method and path
	query  url.Values
	header http.Header
	body   string
}

func newWorld(t *testing.T) *world {
	w := &world{ctx: t.Context(), srv: testkit.LightServer(t)}
	w.client = testkit.Client(t, w.srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: w.record(testkit.Transport(t))}})
	for _, name := range []string{"disk", "disk2"} {
		_, err := w.client.GetOrCreateDrive(t.Context(), name, nil)
		require.NoError(t, err)
	}
	return w
}

// record returns a transport that records requests.
func (w *world) record(next http.RoundTripper) http.RoundTripper {
	return canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
		var body []byte
		if r.Body != nil {
			var err error
			if body, err = io.ReadAll(r.Body); err != nil {
				return nil, err
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		w.mu.Lock()
		w.requests = append(w.requests, request{r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api"), r.URL.Query(), r.Header.Clone(), string(body)})
		via := w.via
		w.mu.Unlock()
		if via != nil {
			return via(r)
		}
		return next.RoundTrip(r)
	})
}

// recorded returns the requests since the last call.
func (w *world) recorded() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.requests
	w.requests = nil
	return list
}

// set replaces the way to the emulator; nil restores it.
func (w *world) set(via func(*http.Request) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.via = via
}

// state returns the emulator's JSON of a sandbox.
func (w *world) state(t *testing.T, name string) any {
	t.Helper()
	cred := w.srv.Credentials()
	u := w.srv.URL + "/v2/sandboxes/" + name + "?" + url.Values{"projectId": {cred.ProjectID}, "teamId": {cred.TeamID}}.Encode()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+cred.Token)
	resp, err := testkit.Transport(t).RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var body struct{ Sandbox map[string]any }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
	return body.Sandbox
}

// with returns options with the given fields.
func (m *method) with(w *world, fields map[string]any) any {
	opts := reflect.New(reflect.TypeOf(m.opts).Elem())
	opts.Elem().Set(reflect.ValueOf(m.opts).Elem())
	for name, v := range fields {
		if f, ok := v.(func(*world) any); ok {
			v = f(w)
		}
		opts.Elem().FieldByName(name).Set(reflect.ValueOf(v))
	}
	return opts.Interface()
}

// play calls the method and returns its request, all other requests, and the handle.
func (m *method) play(t *testing.T, w *world, at string, fields map[string]any) (main request, others []request, handle any) {
	t.Helper()
	w.recorded()
	handle, err := m.call(w, m.with(w, fields))
	require.NoError(t, err)
	want := cmp.Or(at, m.request)
	want = w.expand(want)
	found := false
	for _, r := range w.recorded() {
		switch {
		case r.at == want && !found:
			main, found = r, true
		default:
			others = append(others, r)
		}
	}
	require.True(t, found, "there is no %s", want)
	return main, others, handle
}

func (m *method) test(t *testing.T) {
	t.Run("complete", func(t *testing.T) { m.complete(t) })
	if len(m.rows) > 0 {
		w := newWorld(t)
		rows := m.rows
		if m.byDay > 0 && !needs.Slow() {
			rows = rows[:m.byDay]
		}
		for _, r := range rows {
			t.Run(r.field, func(t *testing.T) { m.row(t, w, r) })
		}
	}
	for name, test := range m.plain {
		t.Run(name, test)
	}
	world := func() *world { return newWorld(t) }
	if len(m.rows) == 0 { // these tests need nothing but the same sandbox
		world = sync.OnceValue(world)
	}
	for name, test := range m.local {
		t.Run(name, func(t *testing.T) { test(t, world(), *m) })
	}
}

var marked = regexp.MustCompile(`("GO_SANDBOX_COMMAND":)"[^"]*"`)

func (m *method) row(t *testing.T, w *world, r row) {
	if m.before != nil {
		m.before(t, w)
	}
	if r.alone != "" {
		w.set(func(req *http.Request) (*http.Response, error) { return canned.JSON(200, canned.RunningSandbox), nil })
		defer w.set(nil)
	}
	base, _, _ := m.play(t, w, "", r.and)
	if m.before != nil {
		m.before(t, w)
	}
	fields := map[string]any{r.field: r.value}
	maps.Copy(fields, r.and)
	with, others, handle := m.play(t, w, r.at, fields)
	query, body := base.query, base.body
	switch {
	case strings.HasPrefix(r.sent, "?"):
		more, err := url.ParseQuery(w.expand(r.sent[1:]))
		require.NoError(t, err)
		maps.Copy(query, more)
	default:
		body = merged(t, base.body, w.expand(r.sent))
	}
	assert.Equal(t, query, with.query, "the query")
	// The variable that marks a process differs in each session.
	body, sent := marked.ReplaceAllString(body, `$1""`), marked.ReplaceAllString(with.body, `$1""`)
	if body != sent {
		assert.JSONEq(t, body, sent, "the body")
	}
	for _, more := range r.also {
		at, body, _ := strings.Cut(w.expand(more), " {")
		assert.True(t, slices.ContainsFunc(others, func(o request) bool {
			return o.at == at && reflect.DeepEqual(decoded(t, "{"+body), decoded(t, o.body))
		}), "%s %s is not among %v", at, body, others)
	}
	if r.alone != "" {
		return
	}
	if sb, ok := handle.(*sandbox.Sandbox); ok && !m.silent && r.state != "none" {
		state := w.state(t, sb.Name())
		want := decoded(t, w.expand(cmp.Or(r.state, r.sent)))
		assert.Empty(t, missing("", want, state), "of the emulator's state")
	}
	want := r.info
	if want == nil {
		want = r.value
	}
	if f, ok := want.(func(*world) any); ok {
		want = f(w)
	}
	if _, ok := want.(hidden); !ok && !m.silent {
		info := reflect.ValueOf(handle).MethodByName("Info").Call(nil)[0].FieldByName(r.field)
		require.True(t, info.IsValid(), "Info has no field %s", r.field)
		assert.Equal(t, pointedTo(reflect.ValueOf(want)), pointedTo(info), "Info().%s", r.field)
	}
	if r.reads != nil {
		r.reads(t, w, handle)
	}
}

// expand replaces the placeholders in the text of a row.
func (w *world) expand(text string) string {
	if w.box != nil {
		text = strings.NewReplacer("SANDBOX", w.box.Name(), "SESSION", w.box.CurrentSession().ID()).Replace(text)
	}
	return strings.NewReplacer("SNAPSHOT", w.snapshot, "CURSOR", w.cursor).Replace(text)
}

func pointedTo(v reflect.Value) any {
	if v.Kind() == reflect.Pointer && v.Elem().Kind() != reflect.Struct && !v.IsNil() {
		v = v.Elem()
	}
	return v.Interface()
}

func decoded(t *testing.T, text string) any {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// merged returns a JSON object with the fields of another.
func merged(t *testing.T, base, more string) string {
	t.Helper()
	if base == "" {
		base = "{}"
	}
	into, ok := decoded(t, base).(map[string]any)
	require.True(t, ok)
	merge(into, decoded(t, more).(map[string]any))
	text, err := json.Marshal(into)
	require.NoError(t, err)
	return string(text)
}

func merge(into, from map[string]any) {
	for name, v := range from {
		a, both := into[name].(map[string]any)
		if b, ok := v.(map[string]any); ok && both {
			merge(a, b)
			continue
		}
		into[name] = v
	}
}

// missing describes what of want is not in got. Null counts as absent.
func missing(at string, want, got any) []string {
	object, ok := want.(map[string]any)
	if !ok {
		if !reflect.DeepEqual(want, got) {
			return []string{fmt.Sprintf("%s: want %v, got %v", at, want, got)}
		}
		return nil
	}
	var list []string
	in, _ := got.(map[string]any)
	for name, v := range object {
		list = append(list, missing(at+"."+name, v, in[name])...)
	}
	return list
}

// complete fails if no row sets a field of the options, or of a struct in them.
func (m *method) complete(t *testing.T) {
	typ := reflect.TypeOf(m.opts).Elem()
	want := map[string]bool{}
	leaves(typ, "", func(path string) { want[path] = true })
	require.NotEmpty(t, want)
	for _, r := range m.rows {
		f, ok := typ.FieldByName(r.field)
		require.True(t, ok, "%s has no field %s", typ, r.field)
		v := r.value
		if later, ok := v.(func(*world) any); ok {
			v = later(&world{snapshot: "x", cursor: "x"})
		}
		holder := reflect.New(f.Type).Elem()
		holder.Set(reflect.ValueOf(v))
		filled(holder, r.field, func(path string) { delete(want, path) })
	}
	for _, path := range slices.AppendSeq(slices.Collect(maps.Keys(m.local)), maps.Keys(m.plain)) {
		f, _, _ := strings.Cut(path, ".")
		_, ok := typ.FieldByName(f)
		assert.True(t, ok, "%s is not a field", path)
		delete(want, path)
	}
	for _, path := range m.held {
		assert.True(t, want[path], "%s is not a field, or in a request as well", path)
		delete(want, path)
	}
	for path := range m.never {
		assert.True(t, want[path], "%s is not a field, or in a request after all", path)
		delete(want, path)
	}
	for path := range want {
		t.Errorf("%s.%s is set by no row: is it sent?", typ, path)
	}
}

const here = "github.com/go-vercel/sandbox"

// sources are the kinds of the interface sandbox.Source.
var sources = []reflect.Type{
	reflect.TypeFor[sandbox.GitSource](), reflect.TypeFor[sandbox.TarballSource](), reflect.TypeFor[sandbox.SnapshotSource](),
}

// inside returns the element type of a type, and reports whether it is a struct of this
// module.
func inside(typ reflect.Type) (reflect.Type, bool) {
	for {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			typ = typ.Elem()
		case reflect.Struct:
			return typ, typ.PkgPath() == here
		default:
			return typ, false
		}
	}
}

// leaves calls visit with the paths of all fields of a type.
func leaves(typ reflect.Type, at string, visit func(string)) {
	for f := range typ.Fields() {
		if !f.IsExported() {
			continue
		}
		if f.Type == reflect.TypeFor[sandbox.Source]() {
			for _, s := range sources {
				leaves(s, at+f.Name+"("+s.Name()+").", visit)
			}
			continue
		}
		if s, ok := inside(f.Type); ok {
			leaves(s, at+f.Name+".", visit)
			continue
		}
		visit(at + f.Name)
	}
}

// filled calls visit with the paths of the fields that are set in a value.
func filled(v reflect.Value, at string, visit func(string)) {
	s, ok := inside(v.Type())
	switch {
	case v.Kind() == reflect.Interface && v.Type() == reflect.TypeFor[sandbox.Source]():
		filled(v.Elem(), at+"("+v.Elem().Type().Name()+")", visit)
	case !ok:
		if !v.IsZero() {
			visit(at)
		}
	case v.Type() == s:
		for f, field := range v.Fields() {
			if f.IsExported() {
				filled(field, at+"."+f.Name, visit)
			}
		}
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			filled(v.Elem(), at, visit)
		}
	case v.Kind() == reflect.Map:
		for _, elem := range v.Seq2() {
			filled(elem, at, visit)
		}
	default:
		for i := range v.Len() {
			filled(v.Index(i), at, visit)
		}
	}
}
