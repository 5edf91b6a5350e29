package conformance

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// onlyHere lists the options that the call does not have in JavaScript, and the options that
// the player sets itself, which are the sandbox of a listing and noWait.
var onlyHere = []string{
	"create.architecture", "create.credentials", "create.onCreate", "create.resume", "create.waitForImage",
	"fork.allowEmpty", "fork.mounts", "fork.waitForImage",
	"getOrCreate.architecture", "getOrCreate.credentials", "getOrCreate.waitForImage", "list.status", "listSnapshots.name",
	"runCommand.binary", "runCommand.id", "runCommand.killOnCancel", "stop.noWait", "update.extra",
}

// unread lists the fields of responses that JavaScript ignores.
var unread = []string{"Info.architecture", "SnapshotInfo.architecture", "DriveInfo.parentDriveId", "DriveInfo.rootDriveId", "DriveInfo.v0"}

// sharedWith maps a call to another call with the same options. The same code sends the
// options of both, so comparing one is enough.
var sharedWith = map[string]string{"getOrCreate": "create"}

// TestEveryFieldIsCompared fails for options that no scenario sets, properties that no
// scenario reads, and fields that no result has. A scenario with its own departure counts only
// for calls with the official SDK's results. It does not count at all if the body of a request
// differs.
func TestEveryFieldIsCompared(t *testing.T) {
	given, asked, returned := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, dir := range []string{dataDir, filepath.Join(dataDir, "more")} {
		suite := suite(t, dir)
		for _, file := range suite.Files() {
			s := decoded[object](must(os.ReadFile(filepath.Join(dir, "scenarios", file))))
			if s["jsOnly"] == true {
				continue
			}
			steps, results := s["steps"].([]any), suite.expected(file).Results
			if d := suite.Departures.load(strings.TrimSuffix(file, ".json")); d != nil {
				steps, results = sameSteps(steps, d), nil
			}
			mapped(steps, func(_ string, v any) (any, bool) {
				step, _ := v.(object)
				op, _ := step["op"].(string)
				args, _ := step["args"].(object)
				for name := range args {
					if strings.HasPrefix(name, "__") {
						name = "extra"
					}
					given[op+"."+name] = true
				}
				names, _ := args["names"].([]any)
				for _, name := range names {
					asked[name.(string)] = true
				}
				return v, true
			})
			mapped(results, func(key string, v any) (any, bool) {
				returned[key] = true
				return v, true
			})
		}
	}
	var missing []string
	for op, spec := range maps.Collect(optionsOf(t)) {
		for field := range spec.Fields() {
			name := argument(field.Name)
			if op == "runCommand" && name == "timeout" {
				name = "timeoutMs"
			}
			at := sharedWith[op]
			if !field.IsExported() {
				continue
			}
			dropped := strings.Contains(calls[op]+listings[op][1]+" ", "-"+name+" ")
			if !dropped && !given[op+"."+name] && (at == "" || !given[at+"."+name]) {
				missing = append(missing, op+"."+name)
			}
		}
	}
	slices.Sort(missing)
	assert.Equal(t, onlyHere, missing, "options that no scenario sets")
	for class, names := range getters {
		for name := range strings.FieldsSeq(strings.ReplaceAll(names, "|", "")) {
			assert.True(t, asked[name], "no scenario reads this property of a %s: %s", class, name)
		}
	}
	for _, info := range []any{sandbox.Info{}, sandbox.SessionInfo{}, sandbox.SnapshotInfo{}, sandbox.DriveInfo{}} {
		of := reflect.TypeOf(info)
		for field := range of.Fields() {
			name := jsName(field.Name)
			if name != "extra" && !slices.Contains(unread, of.Name()+"."+name) {
				assert.True(t, returned[name], "no result has the %s of a %T", name, info)
			}
		}
	}
}

// sameSteps returns the steps of a departure that have the official SDK's results.
func sameSteps(steps []any, d *Departure) (same []any) {
	if strings.Contains(strings.Join(d.Differs, "\n"), ".body") {
		return nil
	}
	for i, step := range steps {
		if !slices.ContainsFunc(d.Differs, func(at string) bool {
			return regexp.MustCompile(fmt.Sprintf(`^results\[%d\]\.(value|error)`, i)).MatchString(at)
		}) {
			same = append(same, step)
		}
	}
	return same
}

// optionsOf iterates over the calls with options, and the types of these options.
func optionsOf(t *testing.T) func(yield func(op string, options reflect.Type) bool) {
	return func(yield func(string, reflect.Type) bool) {
		specs := maps.Clone(calls)
		for op, spec := range listings {
			specs[op] = spec[1]
		}
		specs["runCommand"], specs["snapshot"] = "RunCommand {}", "Snapshot {}"
		for op, spec := range specs {
			if !strings.Contains(spec, "{") {
				continue
			}
			words := strings.Fields(strings.TrimPrefix(spec, "once "))
			name, onClient := strings.CutPrefix(words[0], "Client.")
			on := reflect.TypeFor[*sandbox.Sandbox]()
			if onClient {
				on = reflect.TypeFor[*sandbox.Client]()
			}
			m, ok := on.MethodByName(name)
			require.True(t, ok, spec)
			if !yield(op, m.Type.In(m.Type.NumIn()-1).Elem()) {
				return
			}
		}
	}
}
