package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// These are the ways in which a behavior is known, as in docs/maintainers/platform.md.
const (
	observed   = "observed"
	published  = "published"
	documented = "documented"
	assumed    = "assumed"
)

// Service is the service that Ask asks.
type Service struct {
	// URL is the address of the API.
	URL string
	// Credentials belong to the project in which Ask creates its sandboxes.
	Credentials auth.Credentials
	// HTTPClient sends all requests.
	HTTPClient *http.Client
	// Users is set if a sandbox has root and the image's user. Apart is set if a sandbox
	// has its own ports and its own /tmp. Policies is set if it has its own network, with
	// policies. The hosted service has all of these.
	Users, Apart, Policies bool
	// Within is the time limit for the questions, which does not include the cleanup. Zero
	// means two and a half minutes.
	Within time.Duration
}

// Answer is the answer to a question.
type Answer struct {
	// Row is the beginning of the row of docs/maintainers/platform.md that the question is
	// about. It is empty if there is no such row.
	Row string
	// Asked is the question, and Known the way in which its answer has been known so far.
	Asked, Known string
	// Expected and Came are the expected and the actual answer.
	Expected, Came string
}

// Agrees reports whether the answer is the one that was expected.
func (a Answer) Agrees() bool { return a.Expected == a.Came }

// Observed reports whether the answer had been observed in exchanges with the service before.
func (a Answer) Observed() bool { return a.Known == observed }

// Report is the result of Ask.
type Report struct {
	Answers []Answer
	// Broken lists the steps that failed before their last question, with the reasons.
	// Skipped lists the steps that this service does not support. Left lists the objects
	// that Ask could not delete.
	Broken, Skipped, Left []string
}

// Prefix is the prefix of the names of all objects that Ask creates. The sandboxes also have
// a tag.
const Prefix = "go-live-walk-"

var tags = map[string]string{"made-by": "go-live-walk"}

// Ask creates a small sandbox, asks questions about behavior that the client hides, and
// deletes the sandbox. Some questions need another sandbox for seconds. Ask also deletes the
// objects of an earlier run that was killed, so don't call it twice at the same time for a
// project. It returns no report if it can't create the first sandbox. The report contains all
// other failures.
func Ask(ctx context.Context, s Service) (*Report, error) {
	w := &walk{Service: s, ctx: ctx, base: strings.TrimSuffix(s.URL, "/"), report: &Report{}}
	w.prefix = fmt.Sprintf("%s%x-", Prefix, time.Now().UnixMilli())
	var err error
	w.client, err = sandbox.NewClient(&sandbox.ClientOptions{BaseURL: s.URL, Credentials: auth.Static(s.Credentials), HTTPClient: s.HTTPClient})
	if err != nil {
		return nil, err
	}
	w.sweep()
	defer w.sweep()
	asking, cancel := context.WithTimeout(ctx, cmp.Or(s.Within, 150*time.Second))
	defer cancel()
	w.ctx = asking
	w.sb, err = w.client.Create(asking, &sandbox.CreateOptions{
		Name: w.prefix + "life", VCPUs: 1, Timeout: 4 * time.Minute, Ports: []int{3000, 3001, 3002}, Ephemeral: true, Tags: tags,
	})
	if err != nil {
		return nil, err
	}
	for _, step := range []struct {
		name string
		run  func(*walk)
	}{
		{"create", (*walk).created}, {"names", (*walk).names}, {"commands", (*walk).commands}, {"processes", (*walk).processes}, {"children", (*walk).children},
		{"ends", (*walk).endedCommands}, {"ids", (*walk).ids}, {"stdin", (*walk).stdin}, {"files", (*walk).files}, {"routes", (*walk).routes},
		{"policy", (*walk).policy}, {"settings", (*walk).settings}, {"snapshot", (*walk).snapshots}, {"lost files", (*walk).lostFiles},
		{"drives", (*walk).drives},
	} {
		w.runStep(step.name, step.run)
	}
	return w.report, ctx.Err()
}

// walk asks the questions in steps, during the life of a sandbox. If a step fails, the next
// one runs anyway.
type walk struct {
	Service
	ctx    context.Context
	client *sandbox.Client
	base   string
	prefix string // of the names of this run's objects
	sb     *sandbox.Sandbox
	about  string // the beginning of the row that the next questions are about
	report *Report
}

// broken and skipped are the values with which the methods must and skip panic to end a step.
type (
	broken  struct{ err error }
	skipped struct{ why string }
)

// runStep runs a step and records in the report if it has failed or was skipped.
func (w *walk) runStep(name string, step func(*walk)) {
	defer func() {
		switch end := recover().(type) {
		case nil:
		case broken:
			w.report.Broken = append(w.report.Broken, w.hide(fmt.Sprintf("%s: %v", name, end.err)))
		case skipped:
			w.report.Skipped = append(w.report.Skipped, name+": "+end.why)
		default:
			panic(end)
		}
	}()
	w.about = ""
	step(w)
}

// must ends the step if there is an error.
func (w *walk) must(err error) {
	if err != nil {
		panic(broken{err})
	}
}

func (w *walk) skip(why string) { panic(skipped{why}) }

// row records an answer about the current row.
func (w *walk) row(asked, known, expected string, came any) {
	w.report.Answers = append(w.report.Answers, Answer{w.about, asked, known, w.hide(expected), w.hide(fmt.Sprint(came))})
}

// hide replaces the values in a text that the report must not show.
func (w *walk) hide(text string) string {
	for _, secret := range []struct{ value, name string }{
		{w.Credentials.Token, "TOKEN"}, {w.Credentials.TeamID, "TEAM"}, {w.Credentials.ProjectID, "PROJECT"},
	} {
		if secret.value != "" {
			text = strings.ReplaceAll(text, secret.value, secret.name)
		}
	}
	return text
}

// sweep deletes the objects of this run and of earlier ones. It finds sandboxes, and their
// snapshots, by the prefix and the tag, and drives by the prefix.
func (w *walk) sweep() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), time.Minute)
	defer cancel()
	done := func(what string, err error) bool {
		if err == nil || errors.Is(err, sandbox.ErrNotFound) {
			return true
		}
		w.report.Left = append(w.report.Left, w.hide(fmt.Sprintf("%s: %v", what, err)))
		return false
	}
	var sandboxes, snapshots, drives []string
	for sb, err := range w.client.List(ctx, &sandbox.ListOptions{NamePrefix: Prefix}) {
		if !done("sandboxes", err) {
			return
		}
		if sb.Tags["made-by"] == tags["made-by"] {
			sandboxes = append(sandboxes, sb.Name)
		}
	}
	for _, name := range sandboxes {
		for s, err := range w.client.ListSnapshots(ctx, &sandbox.ListSnapshotsOptions{Sandbox: name}) {
			if !done("snapshots of "+name, err) {
				break
			}
			if s.Status != "deleted" {
				snapshots = append(snapshots, s.ID)
			}
		}
	}
	for _, name := range sandboxes {
		done(name, w.client.Delete(ctx, name, nil))
	}
	for _, id := range snapshots { // last, because a snapshot may be the base of another
		s, err := w.client.GetSnapshot(ctx, id)
		if err == nil {
			err = s.Delete(ctx)
		}
		done("snapshot "+id, err)
	}
	for d, err := range w.client.ListDrives(ctx, &sandbox.ListDrivesOptions{NamePrefix: Prefix}) {
		if errors.Is(err, sandbox.ErrUnauthorized) || errors.Is(err, sandbox.ErrNotFound) {
			return // drives are not enabled for the project
		}
		if !done("drives", err) {
			return
		}
		drives = append(drives, d.Name)
	}
	for _, name := range drives {
		d, err := w.client.GetDrive(ctx, name)
		if err == nil {
			err = d.Delete(ctx)
		}
		done("drive "+name, err)
	}
}

// reply is a response of the API. Its method String returns the status and the code.
type reply struct {
	status int
	header http.Header
	text   string
	body   map[string]any // the body of a JSON response
}

func (r reply) String() string {
	if code := r.at("error", "code"); code != "" {
		return fmt.Sprint(r.status, " ", code)
	}
	return fmt.Sprint(r.status)
}

// at returns a value of the body as text, or "" if it is missing.
func (r reply) at(keys ...string) string {
	var v any = r.body
	for _, key := range keys {
		object, _ := v.(map[string]any)
		v = object[key]
	}
	if v == nil {
		return ""
	}
	if text, ok := v.(string); ok {
		return text
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// userAgent is the user agent of requests that do not use the client.
var userAgent = "go-vercel-sandbox/" + sandbox.Version() + " (doctor)"

// ask sends a request without the client, and therefore without the client's checks. It
// encodes a body as JSON unless it is a []byte.
func (w *walk) ask(method, path string, body any, header ...string) reply {
	r, err := w.tryAsk(method, path, body, header...)
	w.must(err)
	return r
}

func (w *walk) tryAsk(method, path string, body any, header ...string) (reply, error) {
	u, err := url.Parse(w.base + path)
	if err != nil {
		return reply{}, err
	}
	q := u.Query()
	if !q.Has("teamId") {
		q.Set("teamId", w.Credentials.TeamID)
	}
	u.RawQuery = q.Encode()
	data, raw := body.([]byte)
	if !raw && body != nil {
		if data, err = json.Marshal(body); err != nil {
			return reply{}, err
		}
	}
	req, err := http.NewRequestWithContext(w.ctx, method, u.String(), bytes.NewReader(data))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Bearer "+w.Credentials.Token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return w.do(req)
}

func (w *walk) do(req *http.Request) (reply, error) {
	req.Header.Set("User-Agent", userAgent)
	resp, err := w.HTTPClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return reply{}, err
	}
	r := reply{status: resp.StatusCode, header: resp.Header, text: string(text)}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		err = json.Unmarshal(text, &r.body)
	}
	return r, err
}

// visit sends a request to the server on a port of the walk's sandbox: a POST if there is a
// body, and otherwise a GET.
func (w *walk) visit(port int, body io.Reader) reply {
	route, err := w.sb.URL(port)
	w.must(err)
	method := "GET"
	if body != nil {
		method = "POST"
	}
	req, err := http.NewRequestWithContext(w.ctx, method, strings.TrimSuffix(route, "/")+oddPath, body)
	w.must(err)
	req.Header.Set("X-Original-For", originalFor)
	r, err := w.do(req)
	w.must(err)
	return r
}

// earlyResponse sends a request to a server that responds without reading it. It reports whether
// the response arrives before or after the end of the request.
func (w *walk) earlyResponse(port int) string {
	body, in := io.Pipe()
	late := time.AfterFunc(time.Minute, func() { _ = in.Close() })
	w.visit(port, body)
	_ = in.Close() // returns no error
	if late.Stop() {
		return "before"
	}
	return "after"
}

type body = map[string]any

// sessionPath returns the path of a route for the walk's session.
func (w *walk) sessionPath(rest string) string {
	return "/v2/sandboxes/sessions/" + w.sb.CurrentSession().ID() + rest
}

// sandboxPath returns the path of a route for the sandbox with a name.
func (w *walk) sandboxPath(name, rest string) string {
	return "/v2/sandboxes/" + name + rest + "?projectId=" + url.QueryEscape(w.Credentials.ProjectID)
}

// sh runs a script and returns its output and exit code.
func (w *walk) sh(script string, opts *sandbox.CommandOptions) string {
	done, err := w.sb.RunCommand(w.ctx, "sh", []string{"-c", script}, opts)
	w.must(err)
	out, err := done.CombinedOutput(w.ctx)
	w.must(err)
	return fmt.Sprintf("%s, exit code %d", strings.Join(strings.Fields(out), " "), done.ExitCode)
}

// start starts a detached command and returns the path of the command.
func (w *walk) start(script string, more body) string {
	params := body{"command": "sh", "args": []string{"-c", script}, "env": body{}, "sudo": false}
	maps.Copy(params, more)
	r := w.ask("POST", w.sessionPath("/cmd"), params)
	if r.status >= 300 {
		w.must(fmt.Errorf("the service refused a command: %s", r.text))
	}
	return w.sessionPath("/cmd/" + r.at("command", "id"))
}

// firstLine returns the first line of output of a running command.
func (w *walk) firstLine(command string) string {
	req, err := http.NewRequestWithContext(w.ctx, "GET", w.base+command+"/logs?teamId="+url.QueryEscape(w.Credentials.TeamID), nil)
	w.must(err)
	req.Header.Set("Authorization", "Bearer "+w.Credentials.Token)
	resp, err := w.HTTPClient.Do(req)
	w.must(err)
	defer resp.Body.Close()
	var record struct {
		Data string `json:"data"`
	}
	w.must(json.NewDecoder(resp.Body).Decode(&record))
	return strings.TrimSpace(record.Data)
}

func (w *walk) exitCode(path string) string {
	return cmp.Or(w.ask("GET", path, nil).at("command", "exitCode"), "none")
}

func (w *walk) waited(path string) string {
	return cmp.Or(w.ask("GET", path+"?wait=true", nil).at("command", "exitCode"), "none")
}
