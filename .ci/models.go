//go:build ignore

// Models compares the operations, fields and values of the vendor's generated
// client (@vercel/sdk of npm, unpacked) with those of package api and wire, and
// lists what it has and this module doesn't.
//
//	npm pack @vercel/sdk && tar xzf vercel-sdk-*.tgz && go run .ci/models.go package
package main

import (
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// wires are the types of what responses have, by the names of the generated ones.
var wires = map[string]reflect.Type{
	"NamedSandbox": reflect.TypeFor[wire.Sandbox](), "Session": reflect.TypeFor[wire.Session](), "Snapshot": reflect.TypeFor[wire.Snapshot](),
	"SessionCommand": reflect.TypeFor[wire.Command](), "Drive": reflect.TypeFor[wire.Drive](), "SandboxPublicRoute": reflect.TypeFor[wire.Route](),
	"KeepLastSnapshots": reflect.TypeFor[wire.KeepLastSnapshots](), "Mounts": reflect.TypeFor[wire.Mount](),
}

// otherwise are fields and values that are here in another form, or left out.
var otherwise = map[string]string{
	"slug":      "teamId takes one as well",
	"xCwd":      "a header",
	"recursive": "MkdirAll runs mkdir -p",
	"s3Key":     "of the service's own",
}

// wrappers are the types of whole responses.
var wrappers = []reflect.Type{
	reflect.TypeFor[wire.SandboxResponse](), reflect.TypeFor[wire.SandboxesPage](), reflect.TypeFor[wire.SessionResponse](), reflect.TypeFor[wire.SessionsPage](),
	reflect.TypeFor[wire.StopResponse](), reflect.TypeFor[wire.SnapshotResponse](), reflect.TypeFor[wire.SnapshotsPage](), reflect.TypeFor[wire.SnapshotTreePage](),
	reflect.TypeFor[wire.CommandResponse](), reflect.TypeFor[wire.CommandsResponse](), reflect.TypeFor[wire.StdinResponse](), reflect.TypeFor[wire.DriveResponse](),
	reflect.TypeFor[wire.DrivesPage](), reflect.TypeFor[wire.InteractiveResponse](), reflect.TypeFor[wire.Pagination](),
}

var (
	typePattern    = regexp.MustCompile(`(?s)\nexport type (\w+) = \{\n(.*?)\n\};`)
	fieldPattern   = regexp.MustCompile(`(?m)^  (\w+)\??:\s*([^;]+);`)
	commentPattern = regexp.MustCompile(`(?s)/\*\*.*?\*/`)
	enumPattern    = regexp.MustCompile(`(?s)\nexport const (\w+) = \{\n(.*?)\n\} as const;`)
	valuePattern   = regexp.MustCompile(`: "([^"]*)"`)
	methodPattern  = regexp.MustCompile(`method: "(\w+)"`)
	pathPattern    = regexp.MustCompile(`pathToFunc\(\s*"([^"]+)"`)
	importPattern  = regexp.MustCompile(`\} from "\.\./models/(\w+)\.js"`)
	holePattern    = regexp.MustCompile(`\{[^}]*\}`)
)

type models struct {
	fields map[string]map[string]string // by type and field: the field's type
	values map[string][]string          // by enumeration
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: models DIRECTORY")
	}
	src := filepath.Join(os.Args[1], "src")
	ours := source(".")
	files, err := filepath.Glob(filepath.Join(src, "funcs", "sandboxes*.ts"))
	if err != nil || len(files) == 0 {
		log.Fatal("no operations in ", src, " ", err)
	}
	var missing []string
	operations, fields, values := 0, map[string]bool{}, map[string]bool{}
	for _, file := range files {
		text := read(file)
		method, path := methodPattern.FindStringSubmatch(text), pathPattern.FindStringSubmatch(text)
		if method == nil || path == nil {
			log.Fatal(file, " has no path")
		}
		operations++
		if !slices.ContainsFunc(api.Table, func(op *api.Op) bool {
			return op.Method == method[1] && holePattern.ReplaceAllString(op.Path, "{}") == holePattern.ReplaceAllString(path[1], "{}")
		}) {
			missing = append(missing, "operation "+method[1]+" "+path[1])
		}
		m := models{map[string]map[string]string{}, map[string][]string{}}
		for _, name := range importPattern.FindAllStringSubmatch(text, -1) {
			m.load(filepath.Join(src, "models"), name[1], map[string]bool{})
		}
		for _, typ := range slices.Sorted(maps.Keys(m.fields)) {
			if strings.HasSuffix(typ, "Error") {
				continue
			}
			for _, field := range slices.Sorted(maps.Keys(m.fields[typ])) {
				at := typ + "." + field
				if !fields[at] && !known(typ, field, ours) {
					missing = append(missing, "field "+at)
				}
				fields[at] = true
			}
		}
		for typ, list := range m.values {
			if strings.HasSuffix(typ, "Region") || strings.HasSuffix(typ, "Regions") {
				continue // a text, so that a new one needs no new version
			}
			for _, value := range list {
				at := typ + " " + value
				if !values[at] && !strings.Contains(ours, `"`+value+`"`) {
					missing = append(missing, "value "+at)
				}
				values[at] = true
			}
		}
	}
	slices.Sort(missing)
	fmt.Printf("%d operations, %d fields, %d values; not here:\n", operations, len(fields), len(values))
	fmt.Println(strings.Join(slices.Compact(missing), "\n"))
}

// load reads the types of a file of models and of those that it imports.
func (m models) load(dir, name string, seen map[string]bool) {
	if seen[name] || strings.HasSuffix(name, "error") {
		return
	}
	seen[name] = true
	text := commentPattern.ReplaceAllString(read(filepath.Join(dir, name+".ts")), "")
	for _, t := range typePattern.FindAllStringSubmatch(text, -1) {
		m.fields[t[1]] = map[string]string{}
		for _, f := range fieldPattern.FindAllStringSubmatch(t[2], -1) {
			m.fields[t[1]][f[1]] = strings.Join(strings.Fields(f[2]), " ")
		}
	}
	for _, e := range enumPattern.FindAllStringSubmatch(text, -1) {
		for _, v := range valuePattern.FindAllStringSubmatch(e[2], -1) {
			m.values[e[1]] = append(m.values[e[1]], v[1])
		}
	}
	for _, other := range regexp.MustCompile(`from "\./(\w+)\.js"`).FindAllStringSubmatch(text, -1) {
		m.load(dir, other[1], seen)
	}
}

// known reports whether a field is read, if it is one of a response, or sent.
func known(typ, field, ours string) bool {
	if t, ok := wires[typ]; ok {
		return has(t, field)
	}
	if strings.HasSuffix(typ, "ResponseBody") {
		return slices.ContainsFunc(wrappers, func(t reflect.Type) bool { return has(t, field) })
	}
	if otherwise[field] != "" || field == "requestBody" || strings.HasSuffix(field, "Id") && strings.HasSuffix(typ, "Request") {
		return true // the body as a whole, and what is part of the path or of each query
	}
	return regexp.MustCompile(`(json|url):"` + field + `[,"]|"` + field + `"`).MatchString(ours)
}

func has(t reflect.Type, field string) bool {
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name == field {
			return true
		}
	}
	return false
}

// source returns what the client's Go files have.
func source(dir string) string {
	var b strings.Builder
	for _, at := range []string{dir, filepath.Join(dir, "internal/api"), filepath.Join(dir, "internal/wire"), filepath.Join(dir, "internal/engine")} {
		files, err := os.ReadDir(at)
		if err != nil {
			log.Fatal(err)
		}
		for _, f := range slices.DeleteFunc(files, func(f fs.DirEntry) bool {
			return !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go")
		}) {
			b.WriteString(read(filepath.Join(at, f.Name())))
		}
	}
	return b.String()
}

func read(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	return string(text)
}
