package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// document is what a command writes with --json. Its schema is the file of its name
// in the directory schema, which a test makes of the type.
type document struct {
	name  string
	value any
}

var (
	oneSandbox = document{"sandbox", sandboxView{}}
	oneCommand = document{"command", commandView{}}
	someNames  = document{"names", []string{}}
	someFiles  = document{"files", []fileView{}}
	someCopies = document{"copies", []copyView{}}
	isDone     = document{"done", doneView{}}
	telemetry  = document{"telemetry", telemetryView{}}
)

// documents are those of the commands, by their words.
var documents = map[string]document{
	"list": {"sandboxes", []sandboxView{}}, "create": oneSandbox, "fork": oneSandbox, "config list": oneSandbox,
	"inspect": {"inspection", inspectView{}}, "extend": {"session", sessionView{}}, "sessions list": {"sessions", []sessionView{}},
	"stop": {"stops", []stopView{}}, "start": someNames, "remove": someNames, "prune": {"pruned", pruned{}}, "top": {"usages", []usage{}},
	"exec": oneCommand, "run": oneCommand, "wait": oneCommand, "ps": {"commands", []commandView{}},
	"snapshot": {"snapshot", snapshotView{}}, "snapshots list": {"snapshots", []snapshotView{}}, "snapshots get": {"snapshot", snapshotView{}},
	"snapshots tree": {"tree", treeView{}}, "snapshots delete": someNames,
	"drives list": {"drives", []driveView{}}, "drives get-or-create": {"drive", driveView{}}, "drives delete": someNames, "drives files": someFiles,
	"fs ls": someFiles, "fs stat": someFiles, "sync": {"changes", changesView{}}, "url": {"url", urlView{}},
	"config policy show": {"policy", policyView{}},
	"profile list":       {"profiles", []profileView{}}, "whoami": {"whoami", whoamiView{}}, "doctor": {"findings", []finding{}},
	"local status": {"local", localView{}}, "version": {"version", versionView{}},
	"copy": someCopies, "drives copy": someCopies, "write": someCopies, "wait-for": {"waited", waitView{}}, "use": {"active", activeView{}},
	"telemetry status": telemetry, "telemetry enable": telemetry, "telemetry disable": telemetry, "login": {"login", loginView{}}, "logout": isDone, "local stop": isDone,
	"fs mkdir": someNames, "fs rm": someNames, "fs mv": someNames, "fs chmod": someNames, "kill": someNames, "rollback": oneSandbox, "open": {"url", urlView{}},
	"profile set": someNames, "profile use": someNames, "profile remove": someNames, "config get": {"setting", new(any)},
}

// Commands that change a sandbox write it.
func init() {
	for _, s := range configSettings {
		documents["config "+s.name] = oneSandbox
	}
	for _, name := range []string{"set", "mounts", "network-policy", "ports", "tags", "policy set", "policy allow", "policy deny"} {
		documents["config "+name] = oneSandbox
	}
}

// copyView is a copy that was made.
type copyView struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// doneView says whether there was something to do.
type doneView struct {
	Done bool `json:"done"`
}

// errorView is what goes to standard error with --json.
type errorView struct {
	Error failure `json:"error"`
}

// documentOf is the document of a command, if it writes one.
func documentOf(cmd *cobra.Command) (document, bool) {
	d, ok := documents[strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")]
	return d, ok
}

// checkFormat refuses a format with a field that the items of the document don't
// have, before anything is done for them.
func (d document) checkFormat(format string) error {
	item := reflect.TypeOf(d.value)
	if item.Kind() == reflect.Slice {
		item = item.Elem()
	}
	for _, found := range place.FindAllStringSubmatch(format, -1) {
		if err := checkField(item, found[2]); err != nil {
			return err
		}
	}
	return nil
}

// checkField refuses a path, such as session.status, that leads nowhere in a type.
// What has its own way to be JSON may have anything.
func checkField(t reflect.Type, path string) error {
	before := ""
	for name := range strings.SplitSeq(path, ".") {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		own := t.Implements(reflect.TypeFor[json.Marshaler]()) && t != reflect.TypeFor[time.Time]()
		switch {
		case name == "":
			continue
		case own, t.Kind() == reflect.Interface:
			return nil
		case t.Kind() == reflect.Map:
			t = t.Elem()
			continue
		}
		fields, names := fieldsOf(t)
		next, ok := fields[name]
		if !ok && len(names) == 0 {
			return usagef("--format: %s has no fields", strings.TrimSuffix(first(before, "an item"), "."))
		}
		if !ok {
			return usagef("--format: there is no field %s; the fields are %s", quote(before+name), before+strings.Join(names, ", "+before))
		}
		t, before = next, before+name+"."
	}
	return nil
}

// fieldsOf are the fields of an object, by the names that they have in JSON and in
// their order.
func fieldsOf(t reflect.Type) (fields map[string]reflect.Type, names []string) {
	fields = map[string]reflect.Type{}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return fields, nil
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[name] = t.Field(i).Type
		names = append(names, name)
	}
	return fields, names
}

// describe says in words what a document is.
func (d document) describe() string {
	t := reflect.TypeOf(d.value)
	what := "an object with "
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return "an array of names (schema/" + d.name + ".json)"
	case t.Kind() == reflect.Slice:
		t, what = t.Elem(), "an array of objects with "
	}
	_, names := fieldsOf(t)
	return what + strings.Join(names, ", ") + " (schema/" + d.name + ".json)"
}
