package cli

import (
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
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
	"config policy show": {"policy", &sandbox.NetworkPolicy{}},
	"profile list":       {"profiles", []profileView{}}, "whoami": {"whoami", whoamiView{}}, "doctor": {"findings", []finding{}},
	"local status": {"local", localView{}}, "version": {"version", versionView{}},
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

// errorView is what goes to standard error with --json.
type errorView struct {
	Error failure `json:"error"`
}

// documentOf is the document of a command, if it writes one.
func documentOf(cmd *cobra.Command) (document, bool) {
	d, ok := documents[strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")]
	return d, ok
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
	case t.Kind() == reflect.Pointer:
		return "what the API has (schema/" + d.name + ".json)"
	}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return what + strings.Join(names, ", ") + " (schema/" + d.name + ".json)"
}
