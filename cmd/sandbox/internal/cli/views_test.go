package cli

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/internal/wire"
)

// TestViewsShowEveryField: a field of the SDK's descriptions is in the documents of --json,
// or one of these.
func TestViewsShowEveryField(t *testing.T) {
	t.Parallel()
	assert.Empty(t, missingFields(viewSandbox))
	assert.Equal(t, []string{
		"SandboxName", "ProjectID", "RequestedAt", "RequestedStopAt", "AbortedAt", "SnapshottedAt", "UpdatedAt", "InteractivePort",
		"NetworkPolicy", "Extra",
	}, missingFields(viewSession))
	assert.Equal(t, []string{"UpdatedAt"}, missingFields(viewSnapshot))
	assert.Equal(t, []string{"ProjectID", "ParentDriveID", "RootDriveID", "V0"}, missingFields(viewDrive))
	assert.ElementsMatch(t, jsonNames[wire.Command](), jsonNames[commandView]())
}

// TestViewsUseTheNamesOfTheAPI: apart from the routes, which the API writes beside the sandbox.
func TestViewsUseTheNamesOfTheAPI(t *testing.T) {
	t.Parallel()
	assert.Subset(t, append(jsonNames[wire.Sandbox](), "routes"), jsonNames[sandboxView]())
	assert.Subset(t, jsonNames[wire.Session](), jsonNames[sessionView]())
	assert.Subset(t, jsonNames[wire.Snapshot](), jsonNames[snapshotView]())
	assert.Subset(t, jsonNames[wire.Drive](), jsonNames[driveView]())
	assert.Subset(t, jsonNames[wire.Mount](), jsonNames[mountView]())
	assert.Subset(t, jsonNames[wire.Route](), jsonNames[routeView]())
	assert.Subset(t, jsonNames[wire.KeepLastSnapshots](), jsonNames[keepView]())
}

// missingFields lists the fields of T that do not change its view.
func missingFields[T, V any](view func(T) V) (missing []string) {
	for f := range reflect.TypeFor[T]().Fields() {
		var zero, set T
		v := reflect.ValueOf(&set).Elem().FieldByIndex(f.Index)
		switch f.Type.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.String:
			v.SetString("x")
		case reflect.Map:
			v.Set(reflect.MakeMap(f.Type))
			v.SetMapIndex(reflect.Zero(f.Type.Key()), reflect.Zero(f.Type.Elem()))
		case reflect.Slice:
			v.Set(reflect.ValueOf([]string{"x"}))
		case reflect.Pointer:
			v.Set(reflect.New(f.Type.Elem()))
		case reflect.Struct:
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
		default:
			v.SetInt(int64(time.Hour))
		}
		if reflect.DeepEqual(view(zero), view(set)) {
			missing = append(missing, f.Name)
		}
	}
	return missing
}

func jsonNames[T any]() (names []string) {
	for f := range reflect.TypeFor[T]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
		}
	}
	return names
}
