package sandboxtest

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// exchange is what an operation takes and gives, for its description.
type exchange struct {
	in       any      // JSON of the request; nil is none
	required []string // of its members
	query    []string
	status   int
	out      any    // JSON of the response
	kind     string // of a response that is not JSON
	upload   string // of a request that is not JSON
}

var (
	ofProject = []string{"projectId", "teamId", "slug"}
	ofPage    = []string{"project", "limit", "cursor", "sortOrder", "teamId", "slug"}
)

// exchanges has a row for each operation.
var exchanges = map[Operation]exchange{
	CreateSandbox:   {in: createParams{}, status: 200, out: wire.SandboxResponse{}},
	ForkSandbox:     {in: forkParams{}, query: ofProject, status: 200, out: wire.SandboxResponse{}},
	GetSandbox:      {query: append([]string{"resume"}, ofProject...), status: 200, out: wire.SandboxResponse{}},
	ListSandboxes:   {query: append([]string{"sortBy", "namePrefix", "tags", "status"}, ofPage...), status: 200, out: wire.SandboxesPage{}},
	UpdateSandbox:   {in: updateParams{}, query: append([]string{"resume"}, ofProject...), status: 200, out: wire.UpdateResponse{}},
	DeleteSandbox:   {query: append([]string{"deleteOrphanSnapshots"}, ofProject...), status: 200, out: wire.UpdateResponse{}},
	GetSession:      {status: 200, out: wire.SessionResponse{}},
	ListSessions:    {query: append([]string{"name"}, ofPage...), status: 200, out: wire.SessionsPage{}},
	StopSession:     {in: struct{}{}, status: 200, out: wire.StopResponse{}},
	ExtendTimeout:   {in: extendParams{}, required: []string{"duration"}, status: 200, out: wire.SessionResponse{}},
	SetPolicy:       {in: firewall.PolicyRequest{}, status: 200, out: wire.SessionResponse{}},
	CreateSnapshot:  {in: snapshotParams{}, status: 201, out: wire.SnapshotResponse{}},
	OpenInteractive: {in: struct{}{}, status: 200, out: wire.InteractiveResponse{}},
	RunCommand:      {in: commandParams{}, required: []string{"command"}, query: []string{"cmdId"}, status: 200, out: wire.CommandResponse{}},
	ListCommands:    {status: 200, out: wire.CommandsResponse{}},
	GetCommand:      {query: []string{"wait"}, status: 200, out: wire.CommandResponse{}},
	CommandLogs:     {status: 200, kind: "application/x-ndjson"},
	KillCommand:     {in: killParams{}, required: []string{"signal"}, status: 200, out: wire.CommandResponse{}},
	WriteStdin:      {in: stdinParams{}, status: 200, out: wire.StdinResponse{}},
	MakeDir:         {in: pathParams{}, required: []string{"path"}, status: 200, out: struct{}{}},
	WriteFiles:      {upload: "application/gzip", status: 200, out: struct{}{}},
	ReadFile:        {in: pathParams{}, required: []string{"path"}, status: 200, kind: "application/octet-stream"},
	ListSnapshots:   {query: append([]string{"name"}, ofPage...), status: 200, out: wire.SnapshotsPage{}},
	SnapshotTree:    {query: append([]string{"snapshotId"}, ofPage...), status: 200, out: wire.SnapshotTreePage{}},
	GetSnapshot:     {status: 200, out: wire.SnapshotResponse{}},
	DeleteSnapshot:  {status: 200, out: wire.SnapshotResponse{}},

	ListDrives:       {query: append([]string{"projectId", "sortBy", "namePrefix"}, ofPage...), status: 200, out: wire.DrivesPage{}},
	GetOrCreateDrive: {in: driveParams{}, query: ofProject, status: 201, out: wire.DriveResponse{}},
	GetDrive:         {query: ofProject, status: 200, out: wire.DriveResponse{}},
	ForkDrive:        {in: forkDriveParams{}, required: []string{"name"}, query: ofProject, status: 201, out: wire.DriveResponse{}},
	DeleteDrive:      {query: ofProject, status: 200, out: wire.DriveResponse{}},
	GetFeatures:      {query: ofProject, status: 200, out: map[string]any{}},
}

type object = map[string]any

// OpenAPI returns a description of the API of sandboxes, as the emulator serves
// it below [Server].URL, and of its control API, in the JSON of OpenAPI 3.1. It
// is made of the routes that the emulator has.
func OpenAPI() map[string]any {
	schemas := &schemas{all: make(object)}
	paths := make(object)
	place := func(path, method string, operation object) {
		if paths[path] == nil {
			paths[path] = make(object)
		}
		paths[path].(object)[strings.ToLower(method)] = operation
	}
	for _, e := range endpoints {
		x := exchanges[e.op]
		for version := 2; version <= e.newest; version++ {
			path, params := e.template(version)
			place(path, e.method, schemas.operation(string(e.op), "", x, params, "token"))
			if rest, ok := strings.CutPrefix(path, "/v2/sandboxes/drives"); ok {
				place("/v1/drives"+rest, e.method, schemas.operation(string(e.op), "", x, params, "token"))
			}
		}
	}
	for _, r := range controlRoutes {
		x := exchange{in: r.in, status: 200, out: r.out}
		if r.out == nil {
			x.status = 204
		}
		op := schemas.operation("", r.summary, x, namesIn(r.path), "controlToken")
		op["servers"] = []object{{"url": "/"}}
		place(controlPath+r.path, r.method, op)
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Sandbox API of the emulator", "version": "1",
			"description": "Times are milliseconds since 1970 and lengths of time milliseconds. Requests of another version of the API than v2 have the same bodies.",
		},
		"servers": []object{{"url": "/api"}},
		"paths":   paths,
		"components": object{
			"schemas": schemas.all,
			"securitySchemes": object{
				"token": object{"type": "http", "scheme": "bearer"}, "controlToken": object{"type": "http", "scheme": "bearer"},
			},
		},
	}
}

// template is the path of an endpoint with names for its wildcards.
func (e *endpoint) template(version int) (path string, params []string) {
	segments := []string{"/v" + strconv.Itoa(version), "sandboxes"}
	before := "sandboxes"
	for _, s := range e.path {
		if s == "*" {
			name := map[string]string{"sandboxes": "name", "sessions": "sessionId", "cmd": "commandId", "snapshots": "snapshotId", "drives": "drive"}[before]
			params = append(params, name)
			s = "{" + name + "}"
		}
		segments, before = append(segments, s), s
	}
	return strings.Join(segments, "/"), params
}

// namesIn are the names in braces of a path.
func namesIn(path string) (names []string) {
	for s := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(s, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}

// schemas are the types that descriptions refer to by name.
type schemas struct{ all object }

func (s *schemas) operation(op, summary string, x exchange, params []string, token string) object {
	out := object{"security": []object{{token: []string{}}}}
	if op != "" {
		out["operationId"] = op
	}
	if summary != "" {
		out["summary"] = summary
	}
	var list []object
	for _, name := range params {
		list = append(list, object{"name": name, "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for _, name := range x.query {
		list = append(list, object{"name": name, "in": "query", "schema": object{"type": "string"}})
	}
	if list != nil {
		out["parameters"] = list
	}
	switch {
	case x.upload != "":
		out["requestBody"] = object{"required": true, "content": object{x.upload: object{}}}
	case x.in != nil:
		schema := s.of(reflect.TypeOf(x.in), false)
		if x.required != nil {
			schema = object{"allOf": []any{schema}, "required": x.required}
		}
		out["requestBody"] = object{"required": x.required != nil, "content": object{"application/json": object{"schema": schema}}}
	}
	response := object{"description": "Success"}
	switch {
	case x.kind != "":
		response["content"] = object{x.kind: object{}}
	case x.out != nil:
		response["content"] = object{"application/json": object{"schema": s.of(reflect.TypeOf(x.out), true)}}
	}
	out["responses"] = object{
		strconv.Itoa(x.status): response,
		"default":              object{"description": "A refusal", "content": object{"application/json": object{"schema": s.of(reflect.TypeFor[wire.ErrorResponse](), true)}}},
	}
	return out
}

// of describes a type. In responses the members that are always there are
// required; requests take no others than are described.
func (s *schemas) of(t reflect.Type, response bool) object {
	switch {
	case t == reflect.TypeFor[wire.Time](), t == reflect.TypeFor[wire.Duration]():
		return object{"type": "number", "description": "milliseconds"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{}
	case t == reflect.TypeFor[time.Duration]():
		return object{"type": "integer"}
	case strings.HasPrefix(t.Name(), "nullable["):
		return object{"anyOf": []any{s.of(t.Field(0).Type, response), object{"type": "null"}}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem(), response)
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem(), response)}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem(), response)}
	case reflect.Struct:
		return s.object(t, response)
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Interface:
		return object{}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	}
	return object{"type": "integer"}
}

// object describes a struct, by its name where it has one.
func (s *schemas) object(t reflect.Type, response bool) object {
	name := strings.ToUpper(t.Name()[:min(1, len(t.Name()))]) + t.Name()[min(1, len(t.Name())):]
	ref := object{"$ref": "#/components/schemas/" + name}
	if name != "" && s.all[name] != nil {
		return ref
	}
	out := object{"type": "object"}
	if name != "" {
		s.all[name] = out // before its members, one of which may be of its kind
	}
	properties, required := make(object), []string{}
	s.members(t, response, properties, &required)
	out["properties"] = properties
	if response && len(required) > 0 {
		out["required"] = required
	}
	if !response {
		out["additionalProperties"] = false
		out["patternProperties"] = object{"^__": object{}}
	}
	if name == "" {
		return out
	}
	return ref
}

func (s *schemas) members(t reflect.Type, response bool, properties object, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.members(f.Type, response, properties, required)
			continue
		case !f.IsExported() || name == "-" || name == "":
			continue
		}
		always := !slices.ContainsFunc(strings.Split(options, ","), func(o string) bool { return strings.HasPrefix(o, "omit") })
		properties[name] = s.of(f.Type, response)
		if response && always && f.Type.Kind() == reflect.Pointer {
			properties[name] = object{"anyOf": []any{properties[name], object{"type": "null"}}}
		}
		if always {
			*required = append(*required, name)
		}
	}
}

// operations are those that have a route, sorted.
func operations() []Operation {
	all := make(map[Operation]bool)
	for _, e := range endpoints {
		all[e.op] = true
	}
	return slices.Sorted(maps.Keys(all))
}
