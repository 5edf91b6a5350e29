package promises_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
)

// unread lists the fields of recorded responses that no public type shows, with the reasons.
var unread = map[string]string{
	"sandbox.driveCount": unheard, "sandbox.mounts.driveId": unheard, "snapshot.extra": unheard, "snapshot.other": unheard,
	"drive.usedBytes": unheard, "command.extra": unheard,
	"sandbox.networkPolicy.injectionRules.headers.leaked": values, "session.networkPolicy.injectionRules.headers.leaked": values,
	"command.sessionId": "the request names the session, which SessionID returns",
	"pagination.count":  "the number of Items",
	"route.subdomain":   "becomes a part of the URL if a route has none",
}

const (
	unheard = "an unknown field that a recording contains to show that it does no harm"
	failed  = "the client refuses this response: "
	values  = "a secret value of a header"
)

// kinds maps the names of objects in recorded responses to kinds of objects.
var kinds = map[string]string{
	"sandbox": "sandbox", "sandboxes": "sandbox", "session": "session", "sessions": "session", "routes": "route", "snapshot": "snapshot",
	"snapshots": "snapshot", "siblings": "snapshot", "command": "command", "commands": "command", "drive": "drive", "drives": "drive",
	"pagination": "pagination",
}

// TestResponses changes each field of the recorded responses, one at a time. The JSON of
// the public types must change, too.
func TestResponses(t *testing.T) {
	t.Parallel()
	objects := recordedObjects(t)
	// The recordings lack these newer fields.
	objects["route"]["system"], objects["drive"]["v0"] = false, false
	for _, kind := range []string{"sandbox", "session"} {
		objects[kind]["networkPolicy"].(map[string]any)["mode"] = "custom" // the client ignores the other fields in other modes
	}
	found := map[string]bool{}
	t.Cleanup(func() {
		for name := range unread {
			assert.True(t, found[name], "no recorded response contains %s: remove it from unread", name)
		}
	})
	for kind, shown := range map[string]func(*testing.T, map[string]any) any{
		"sandbox": shownSandbox, "session": shownSandbox, "route": shownSandbox, "snapshot": shownSnapshot, "command": shownCommand,
		"drive": shownDrive, "pagination": shownPage,
	} {
		t.Run(kind, func(t *testing.T) {
			require.NotEmpty(t, objects[kind])
			same := fmt.Sprint(show(t, shown, objects))
			require.NotContains(t, same, failed)
			require.Equal(t, same, fmt.Sprint(show(t, shown, objects)), "the same response must have the same JSON")
			for _, path := range leafPaths(objects[kind], nil) {
				name := kind
				for _, p := range path {
					if s, ok := p.(string); ok && !strings.HasPrefix(s, "/") {
						name += "." + s
					}
				}
				found[name] = true
				undo := change(objects[kind], path)
				seen := same != fmt.Sprint(show(t, shown, objects))
				undo()
				switch _, listed := unread[name]; {
				case listed && seen:
					t.Errorf("a public type shows %s: remove it from unread", name)
				case !listed && !seen:
					t.Errorf("recorded responses contain %s, but no public type shows it", name)
				}
			}
		})
	}
}

// recordedObjects returns, for each kind, an object with all fields of the recordings.
func recordedObjects(t *testing.T) map[string]map[string]any {
	files, err := filepath.Glob("../../../testdata/conformance/scenarios/*.json")
	require.NoError(t, err)
	more, err := filepath.Glob("../../../testdata/conformance/more/scenarios/*.json")
	require.NoError(t, err)
	require.Greater(t, len(files), 200)
	objects := map[string]map[string]any{}
	for _, file := range slices.Concat(files, more) {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var scenario struct {
			Server []struct {
				On     string
				Status int
				JSON   any
				NDJSON []any
			}
		}
		require.NoError(t, json.Unmarshal(data, &scenario), file)
		for _, e := range scenario.Server {
			if e.Status < 300 && strings.Contains(e.On, "/sandboxes") {
				gather(objects, e.JSON)
				gather(objects, e.NDJSON)
			}
		}
	}
	return objects
}

// gather adds the fields of all objects in v to objects.
func gather(objects map[string]map[string]any, v any) {
	switch v := v.(type) {
	case []any:
		for _, elem := range v {
			gather(objects, elem)
		}
	case map[string]any:
		for name, inner := range v {
			list, ok := inner.([]any)
			if !ok {
				list = []any{inner}
			}
			for _, elem := range list {
				object, ok := elem.(map[string]any)
				kind := kinds[name]
				if _, node := object["siblings"]; !ok || kind == "" || node {
					gather(objects, elem)
					continue
				}
				if objects[kind] == nil {
					objects[kind] = map[string]any{}
				}
				addFields(objects[kind], object)
			}
		}
	}
}

// addFields adds the fields of from to into. Each list gets one element, with the fields of
// all elements.
func addFields(into, from map[string]any) {
	for name, v := range from {
		switch v := v.(type) {
		case nil:
		case map[string]any:
			inner, ok := into[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				into[name] = inner
			}
			addFields(inner, v)
		case []any:
			list, _ := into[name].([]any)
			for _, elem := range v {
				object, isObject := elem.(map[string]any)
				switch {
				case len(list) == 0 && isObject:
					list = append(list, map[string]any{})
					fallthrough
				case isObject:
					if first, ok := list[0].(map[string]any); ok {
						addFields(first, object)
					}
				case len(list) == 0:
					list = append(list, elem)
				}
			}
			into[name] = list
		default:
			if _, ok := into[name]; !ok {
				into[name] = v
			}
		}
	}
}

// leafPaths returns the paths of all strings, numbers and booleans.
func leafPaths(v any, at []any) (paths [][]any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			paths = append(paths, leafPaths(v[name], append(slices.Clone(at), name))...)
		}
	case []any:
		for i, elem := range v {
			paths = append(paths, leafPaths(elem, append(slices.Clone(at), i))...)
		}
	case nil:
	default:
		paths = append(paths, at)
	}
	return paths
}

// change changes the value at a path. It returns a function that restores the value.
func change(v any, path []any) (undo func()) {
	for _, step := range path[:len(path)-1] {
		v = elem(v, step)
	}
	last := path[len(path)-1]
	was := elem(v, last)
	var now any
	switch was := was.(type) {
	case string:
		now = was + "x"
	case float64:
		now = was + 86400000
	case bool:
		now = !was
	}
	set(v, last, now)
	return func() { set(v, last, was) }
}

func elem(v, step any) any {
	if i, ok := step.(int); ok {
		return v.([]any)[i]
	}
	return v.(map[string]any)[step.(string)]
}

func set(v, step, to any) {
	if i, ok := step.(int); ok {
		v.([]any)[i] = to
		return
	}
	v.(map[string]any)[step.(string)] = to
}

// show returns the JSON of the public types for the objects, or of the error if the client
// refuses them. An error also proves that the client has read the changed field.
func show(t *testing.T, shown func(*testing.T, map[string]any) any, objects map[string]map[string]any) string {
	o := map[string]any{}
	for kind, v := range objects {
		o[kind] = v
	}
	text, err := json.Marshal(shown(t, o))
	require.NoError(t, err)
	return string(text)
}

// clientOf returns a client of an API that gives the same response to every request.
func clientOf(t *testing.T, response map[string]any) *sandbox.Client {
	text, err := json.Marshal(response)
	require.NoError(t, err)
	return canned.API(func(*http.Request) (*http.Response, error) { return canned.JSON(200, string(text)), nil }).Client(t)
}

// identity returns the name or ID of an object. A test requests the object by it, because
// the client refuses a response about another object.
func identity(t *testing.T, o map[string]any, kind, field string) string {
	text, ok := o[kind].(map[string]any)[field].(string)
	require.True(t, ok)
	return text
}

func shownSandbox(t *testing.T, o map[string]any) any {
	sb, err := clientOf(t, map[string]any{"sandbox": o["sandbox"], "session": o["session"], "routes": []any{o["route"]}}).Create(t.Context(), nil)
	if err != nil {
		return failed + err.Error()
	}
	return []any{sb.Info(), sb.CurrentSession().Info(), sb.Routes()}
}

func shownSnapshot(t *testing.T, o map[string]any) any {
	s, err := clientOf(t, map[string]any{"snapshot": o["snapshot"]}).GetSnapshot(t.Context(), identity(t, o, "snapshot", "id"))
	if err != nil {
		return failed + err.Error()
	}
	return s.Info()
}

func shownDrive(t *testing.T, o map[string]any) any {
	d, err := clientOf(t, map[string]any{"drive": o["drive"]}).GetDrive(t.Context(), identity(t, o, "drive", "name"))
	if err != nil {
		return failed + err.Error()
	}
	return d.Info()
}

func shownPage(t *testing.T, o map[string]any) any {
	p, err := clientOf(t, map[string]any{"sandboxes": []any{}, "pagination": o["pagination"]}).ListPage(t.Context(), nil)
	if err != nil {
		return failed + err.Error()
	}
	return p.Next
}

func shownCommand(t *testing.T, o map[string]any) any {
	response := map[string]any{"session": o["session"], "sandbox": o["sandbox"], "routes": []any{}, "command": o["command"]}
	sb, err := clientOf(t, response).Create(t.Context(), nil)
	if err != nil {
		return failed + err.Error()
	}
	c, err := sb.GetCommand(t.Context(), identity(t, o, "command", "id"))
	if err != nil {
		return failed + err.Error()
	}
	elapsed, _ := c.Elapsed()
	code, exited := c.ExitStatus()
	return []any{c.ID(), c.Name(), c.Args(), c.Cwd(), c.SessionID(), c.StartedAt(), elapsed, code, exited}
}

// TestTree is like TestResponses, but for the fields of the snapshot tree.
func TestTree(t *testing.T) {
	t.Parallel()
	node := func(id string) map[string]any {
		return map[string]any{"snapshot": map[string]any{"id": id}, "siblings": []any{map[string]any{"id": id + "s"}}, "count": "7"}
	}
	page, err := clientOf(t, map[string]any{
		"snapshots": []any{node("a")}, "anchor": node("b"), "pagination": map[string]any{"count": 1, "next": "n"},
	}).SnapshotTreePage(t.Context(), "x", nil)
	require.NoError(t, err)
	for id, n := range map[string]sandbox.SnapshotTreeNode{"a": page.Items[0], "b": *page.Anchor} {
		assert.Equal(t, []any{id, id + "s", 7}, []any{n.Snapshot.ID, n.Siblings[0].ID, n.Count})
	}
	assert.Equal(t, "n", page.Next)
}
