package cli

import (
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// document is what a command writes with --json.
type document struct{ value any }

var (
	oneSandbox = document{sandboxView{}}
	oneCommand = document{commandView{}}
	someNames  = document{[]string{}}
	someCopies = document{[]copyView{}}
	isDone     = document{doneView{}}
	telemetry  = document{telemetryView{}}
)

// documents are those of the commands, by their words.
var documents = map[string]document{
	"list": {[]sandboxView{}}, "create": oneSandbox, "fork": oneSandbox, "config list": oneSandbox,
	"inspect": {inspectView{}}, "extend": {sessionView{}}, "sessions list": {[]sessionView{}},
	"stop": {[]stopView{}}, "start": someNames, "remove": someNames,
	"exec": oneCommand, "run": oneCommand, "wait": oneCommand, "ps": {[]commandView{}},
	"snapshot": {snapshotView{}}, "snapshots list": {[]snapshotView{}}, "snapshots get": {snapshotView{}},
	"snapshots tree": {treeView{}}, "snapshots delete": someNames,
	"drives list": {[]driveView{}}, "drives get-or-create": {driveView{}}, "drives delete": someNames,
	"url":                {urlView{}},
	"config policy show": {policyView{}},
	"whoami":             {whoamiView{}}, "doctor": {[]finding{}},
	"local status": {localView{}}, "version": {versionView{}},
	"copy": someCopies, "write": someCopies,
	"telemetry status": telemetry, "telemetry enable": telemetry, "telemetry disable": telemetry, "login": {loginView{}}, "logout": isDone, "local stop": isDone, "local restart": isDone,
	"kill": someNames,
}

// Commands that change a sandbox write it.
func init() {
	for _, s := range configSettings {
		documents["config "+s.name] = oneSandbox
	}
	for _, name := range []string{"mounts", "network-policy", "ports", "tags"} {
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

// fieldsOf are the fields of an object, by the names that they have in JSON.
func fieldsOf(t reflect.Type) (names []string) {
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return nil
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// describe says in words what a document is.
func (d document) describe() string {
	t := reflect.TypeOf(d.value)
	what := "an object with "
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return "an array of names"
	case t.Kind() == reflect.Slice:
		t, what = t.Elem(), "an array of objects with "
	}
	return what + strings.Join(fieldsOf(t), ", ")
}
