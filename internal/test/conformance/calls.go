package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// calls are the operations that need only one call of the SDK. Each has a method, and words
// for its arguments. The method belongs to the step's object, the client or the object's
// files. A word is the name of an argument of the step, or a number. The word {} stands for
// options: they contain all other arguments of the step, except for those in words with a
// minus, and the fields named within the braces are true. "once" marks a call that may take
// effect twice if it is repeated.
var calls = map[string]string{
	"create":           "once Client.Create {}",
	"fork":             "once Client.Fork sourceSandbox {AllowEmpty} -source -runtime",
	"get":              "Client.Get name {}",
	"getOrCreate":      "once Client.GetOrCreate name {}",
	"snapshotGet":      "Client.GetSnapshot snapshotId",
	"driveGetOrCreate": "Client.GetOrCreateDrive name {}",

	"currentSession":      "CurrentSession",
	"domain":              "URL port",
	"stop":                "Stop {NoWait}",
	"dispose":             "Close",
	"delete":              "Delete {}",
	"update":              "Update {} -env",
	"updateNetworkPolicy": "UpdateNetworkPolicy policy",
	"extendTimeout":       "once ExtendTimeout durationMs",
	"openInteractive":     "OpenInteractive",

	"getCommand": "GetCommand cmdId",
	"stdout":     "Stdout",
	"stderr":     "Stderr",

	"createUser":      "CreateUser username",
	"asUser":          "AsUser username",
	"addToGroup":      "AddToGroup groupname",
	"removeFromGroup": "RemoveFromGroup groupname",

	"mkDir":         "once FS.Mkdir path 0755",
	"fs.mkdir":      "FS.Mkdir path 0777",
	"fs.mkdir all":  "FS.MkdirAll path 0777",
	"fs.writeFile":  "FS.WriteFile path data 0644",
	"fs.appendFile": "FS.AppendFile path data",
	"fs.unlink":     "FS.Remove path",
	"fs.rmdir":      "FS.Remove path",
	"fs.rename":     "FS.Rename from to",
	"fs.copyFile":   "FS.CopyFile from to",
	"fs.exists":     "FS.Exists path",
	"fs.stat":       "FS.Stat path",
	"fs.lstat":      "FS.Lstat path",
	"fs.chown":      "FS.Chown path uid gid",
	"fs.symlink":    "FS.Symlink target path",
	"fs.readlink":   "FS.Readlink path",
	"fs.realpath":   "FS.RealPath path",
	"fs.truncate":   "FS.Truncate path len",
}

// method makes a call that calls describes.
func (c *call) method(spec string) (any, error) {
	spec, again := strings.CutPrefix(spec, "once ")
	words := strings.Fields(spec)
	m, args, err := c.boundMethod(words[0])
	if err != nil {
		return nil, err
	}
	var in []reflect.Value
	for i, word := 0, 1; i < m.Type().NumIn(); i++ {
		p := reflect.New(m.Type().In(i)).Elem()
		if p.Type() == reflect.TypeFor[context.Context]() {
			p.Set(reflect.ValueOf(c.ctx))
		} else if err := c.setParameter(p, words[word], words[1:], args); err != nil {
			return nil, err
		} else {
			word++
		}
		in = append(in, p)
	}
	do := func() (any, error) {
		out := m.Call(in)
		last, _ := reflect.TypeAssert[error](out[len(out)-1])
		if out[0].Kind() == reflect.Interface && out[0].IsNil() || len(out) == 1 && last != nil {
			return nil, last
		}
		return out[0].Interface(), last
	}
	if again {
		return once(c, do)
	}
	return do()
}

// boundMethod returns the method that a word names, and the arguments of the step.
func (c *call) boundMethod(word string) (m reflect.Value, args arguments, err error) {
	on, name := c.target, word
	args = decoded[arguments](c.step.Args)
	if of, method, ok := strings.Cut(word, "."); ok {
		if name = method; of == "Client" {
			args, on = c.static()
		} else {
			on = on.(filesystem).FS()
		}
	}
	if sb, ok := on.(*sandbox.Sandbox); ok && sb.CurrentSession() == nil && (name == "CurrentSession" || name == "URL") {
		err = errNoSession
	}
	return reflect.ValueOf(on).MethodByName(name), args, err
}

// setParameter sets the argument that a word describes.
func (c *call) setParameter(p reflect.Value, word string, words []string, args arguments) error {
	if named, ok := strings.CutPrefix(word, "{"); ok {
		p.Set(reflect.New(p.Type().Elem()))
		if f := p.Elem().FieldByName(strings.TrimSuffix(named, "}")); f.IsValid() {
			f.SetBool(true)
		}
		return c.options(p.Elem(), args.without(words))
	}
	if n, err := strconv.ParseUint(word, 0, 32); err == nil {
		p.SetUint(n)
		return nil
	}
	switch v := p.Addr().Interface().(type) {
	case *string:
		*v = args.text(word)
	case *[]byte:
		*v = content(args)
	case **sandbox.NetworkPolicy:
		return policy(args[word], v)
	case *time.Duration:
		*v = millis(decoded[float64](args[word]))
	default:
		args.get(word, v)
	}
	return nil
}

// arguments are the arguments of a call, by their names: the parameters of the SDK and, for a
// static call, the credentials.
type arguments map[string]json.RawMessage

// get decodes an argument to into. If the argument is absent or null, into is unchanged.
func (a arguments) get(name string, into any) {
	if !isNull(a[name]) {
		check(json.Unmarshal(a[name], into))
	}
}

// stringArgument returns a string argument of the step.
func (c *call) stringArgument(name string) string { return decoded[arguments](c.step.Args).text(name) }

// text returns a string argument, or "" if the argument is not a string.
func (a arguments) text(name string) string {
	var v string
	_ = json.Unmarshal(a[name], &v)
	return v
}

func (a arguments) without(words []string) arguments {
	rest := arguments{}
	for k, raw := range a {
		if !slices.Contains(words, k) && !slices.Contains(words, "-"+k) {
			rest[k] = raw
		}
	}
	return rest
}

// argument returns the JavaScript name of a field of options.
func argument(field string) string {
	renamed := map[string]string{"VCPUs": "resources", "Ephemeral": "persistent", "NoResume": "resume", "KeepEvicted": "deleteEvicted"}
	return cmp.Or(renamed[field], jsName(field))
}

// options sets each field of an options struct from the argument with its JavaScript name.
func (c *call) options(o reflect.Value, args arguments) (err error) {
	for i := range o.NumField() {
		field := o.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		name := argument(field.Name)
		raw := args[name]
		switch v := o.Field(i).Addr().Interface().(type) {
		case *time.Duration:
			if field.Type == reflect.TypeFor[time.Duration]() && !isNull(args[name+"Ms"]) {
				name += "Ms"
			}
			*v = millis(decoded[float64](args[name]))
			if strings.Contains(field.Name, "Expiration") && !isNull(raw) && *v == 0 {
				*v = sandbox.Forever
			}
		case *bool:
			// A field that is true by default in JavaScript has the opposite meaning in this SDK.
			opposite := name != jsName(field.Name)
			on := *v || opposite
			args.get(name, &on)
			*v = on != opposite
		case *sandbox.Hook:
			if !isNull(raw) {
				h := c.d.hook(name, raw)
				*v = func(ctx context.Context, sb *sandbox.Sandbox) error { return h(ctx, sb) }
			}
		case **sandbox.KeepLastSnapshots:
			if !isNull(raw) || raw != nil && o.Type() == reflect.TypeFor[sandbox.UpdateOptions]() { // in an update, null removes the value
				*v = &sandbox.KeepLastSnapshots{}
				err = errors.Join(err, c.options(reflect.ValueOf(*v).Elem(), decoded[arguments](raw)))
			}
		case *sandbox.Source:
			if of := sourceTypes[decoded[struct{ Type string }](raw).Type]; of != nil {
				source := reflect.New(of)
				check(json.Unmarshal(raw, source.Interface()))
				*v = source.Elem().Interface().(sandbox.Source)
			}
		case **sandbox.NetworkPolicy:
			err = errors.Join(err, policy(raw, v))
		case *map[string]sandbox.Mount:
			*v = c.mounts(raw)
		case **string: // the field Network: null detaches the network, and an empty text changes nothing
			if text := args.text(name); text != "" || string(raw) == "null" {
				*v = &text
			}
		case *object:
			*v = args.private()
		default:
			switch field.Name {
			case "VCPUs":
				o.Field(i).SetInt(decoded[struct{ VCPUs int64 }](raw).VCPUs)
			case "Credentials", "Stdout", "Stderr": // in JavaScript, these are not options
			default:
				args.get(name, v)
			}
		}
	}
	return err
}

var sourceTypes = map[string]reflect.Type{
	"git": reflect.TypeFor[sandbox.GitSource](), "tarball": reflect.TypeFor[sandbox.TarballSource](), "snapshot": reflect.TypeFor[sandbox.SnapshotSource](),
}

// private returns the parameters whose names begin with two underscores.
func (a arguments) private() object {
	var out object
	for k, raw := range a {
		if strings.HasPrefix(k, "__") {
			if out == nil {
				out = object{}
			}
			out[k] = raw
		}
	}
	return out
}

// errImpossible reports a policy or a mount that the SDK's type can't represent.
var errImpossible = errors.New("conformance: impossible value")

// policy decodes a policy. Its JSON is the same in this SDK and in JavaScript.
func policy(raw json.RawMessage, into **sandbox.NetworkPolicy) error {
	if raw == nil || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return errors.Join(errImpossible, err)
	}
	return nil
}

// mounts decodes the mounts of a sandbox. If a mount is a saved drive, it mounts the drive
// read-write, as in the official SDK.
func (c *call) mounts(raw json.RawMessage) map[string]sandbox.Mount {
	if isNull(raw) {
		return nil
	}
	out := map[string]sandbox.Mount{}
	for at, m := range decoded[map[string]struct {
		Saved, Drive string
		Mode         string
	}](raw) {
		mount := sandbox.Mount{Drive: m.Drive, Mode: sandbox.MountMode(m.Mode)}
		switch v, _ := c.d.saved.Load(m.Saved); v := v.(type) {
		case *sandbox.Drive:
			mount = v.Mount(sandbox.MountReadWrite)
		case sandbox.Mount:
			mount = v
		}
		out[at] = mount
	}
	return out
}

// static returns the arguments and the client of a static call.
func (c *call) static() (arguments, *sandbox.Client) {
	all := arguments{}
	creds := c.step.Credentials
	if creds == nil {
		creds = must(json.Marshal(c.d.scenario.Credentials))
	}
	for _, part := range []json.RawMessage{creds, c.step.Args} {
		maps.Copy(all, decoded[arguments](part))
	}
	return all, c.client(all)
}

// client returns a client for a static call. In JavaScript, such a call creates its own client.
func (c *call) client(a arguments) *sandbox.Client {
	hc := c.d.http
	if a.text("fetch") == "counting" {
		hc = &http.Client{Transport: countingTransport{c.d}}
	}
	opts := &sandbox.ClientOptions{HTTPClient: hc, BaseURL: c.d.api, ServerCommandIDs: true}
	cr := auth.Credentials{Token: a.text("token"), TeamID: a.text("teamId"), ProjectID: a.text("projectId")}
	if opts.Credentials = auth.Static(cr); cr == (auth.Credentials{}) {
		opts.Credentials = c.d.environment()
	}
	return must(sandbox.NewClient(opts))
}

// countingTransport is the transport of scenarios that set one. It counts the requests.
type countingTransport struct{ d *driver }

func (t countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.d.fetches.Add(1)
	return t.d.http.Transport.RoundTrip(r)
}

// once repeats a call that fails with an unknown outcome. The official SDK retries such a
// call, but this SDK does not, because the call may take effect twice. The driver repeats it,
// as a caller may, so that the rest of the scenario can be compared.
func once[T any](c *call, do func() (T, error)) (T, error) {
	v, err := do()
	pause := 440 * time.Millisecond
	for n := 1; n < 3; n++ {
		c.out["#sent"] = n
		var req *sandbox.RequestError
		var resp *sandbox.APIError
		if !errors.Is(err, sandbox.ErrOutcomeUnknown) || c.ctx.Err() != nil ||
			!errors.As(err, &req) && (!errors.As(err, &resp) || resp.Status < 500) {
			break
		}
		c.rule("once-not-repeated")
		c.out["#sent"] = n + 1
		time.Sleep(pause)
		pause *= 2
		v, err = do()
	}
	return v, err
}
