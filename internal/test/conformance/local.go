package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/proxy"
)

// ops are the operations that need several calls of the SDK, or none. They are functions.
var ops map[string]func(*call) (any, error)

func init() {
	ops = map[string]func(*call) (any, error){
		"readFile": op(opReadFile), "readFileToBuffer": op(opReadFile), "downloadFile": op(opDownloadFile),
		"writeFiles": op(opWriteFiles), "fs.chmod": op(opChmod), "fs.readdir": op(opReaddir),
		"fs.readFile": op(func(c *call, on filesystem, a fileArgs) (any, error) {
			data, err := readAll(c, on.FS(), a.filePath)
			if err != nil || a.Encoding == "" {
				return data, err
			}
			return decodeText(data, a.Encoding), nil
		}),
		"fs.rm": op(func(c *call, on filesystem, a fileArgs) (any, error) {
			if a.Recursive {
				return nil, on.FS().RemoveAll(c.ctx, a.Path)
			}
			err := on.FS().Remove(c.ctx, a.Path)
			if a.Force && errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return nil, err
		}),
		"fs.access": op(func(c *call, on filesystem, a fileArgs) (any, error) {
			found, err := on.FS().Exists(c.ctx, a.Path)
			if err == nil && !found {
				err = &fs.PathError{Op: "access", Path: a.Path, Err: syscall.ENOENT}
			}
			return nil, err
		}),
		"fs.mkdtemp": op(func(c *call, on filesystem, a fileArgs) (any, error) {
			dir, pattern := path.Split(a.Prefix)
			return on.FS().MkdirTemp(c.ctx, cmp.Or(dir, "."), pattern)
		}),

		"props": op(opProps), "deserialize": op(opDeserialize), "proxy": op(opProxy), "parallel": op(opParallel), "localFile": op(opLocalFile),
		"runCommand": op(opRunCommand), "output": op(opOutput), "kill": op(opKill), "logs": op(opLogs), "piped": op(opPiped),

		"fetchCount": func(c *call) (any, error) { return float64(c.d.fetches.Load()), nil },
		"wait": func(c *call) (any, error) {
			if done, ok := c.target.(*sandbox.CommandResult); ok {
				return done, nil
			}
			return c.method("Wait")
		},
		"snapshot": func(c *call) (any, error) {
			if drive, ok := c.target.(*sandbox.Drive); ok {
				return drive.Mount(sandbox.MountSnapshot), nil
			}
			return c.method("once Snapshot {}")
		},
		"createGroup": op(func(c *call, sb *sandbox.Sandbox, a groupArgs) (any, error) {
			dir, err := sb.CreateGroup(c.ctx, a.Groupname)
			return object{"groupname": a.Groupname, "sharedDir": dir}, err
		}),
		"addUserToGroup":      groupOp((*sandbox.User).AddToGroup),
		"removeUserFromGroup": groupOp((*sandbox.User).RemoveFromGroup),
		"serialize": func(c *call) (any, error) {
			data, err := json.Marshal(c.target)
			return json.RawMessage(data), err
		},
		"sleep": op(func(_ *call, _ any, a localArgs) (any, error) {
			time.Sleep(millis(a.Ms))
			return nil, nil
		}),
		"awaitSeen": op(func(c *call, _ any, a localArgs) (any, error) {
			for i := 0; i < 250 && c.d.server.count() < a.Count; i++ {
				time.Sleep(20 * time.Millisecond)
			}
			return nil, nil
		}),
		"writeLocalFile": op(func(_ *call, _ any, a localArgs) (any, error) {
			return nil, os.WriteFile(a.Path, []byte(a.UTF8), 0o644)
		}),
		"env": op(func(_ *call, _ any, a localArgs) (any, error) {
			for k, v := range a.Set {
				check(os.Setenv(k, v))
			}
			for _, k := range a.Unset {
				check(os.Unsetenv(k))
			}
			return nil, nil
		}),
	}
}

type groupArgs struct{ Username, Groupname string }

// groupOp returns an operation that changes a user's groups. In JavaScript, a sandbox also
// has these methods.
func groupOp(do func(u *sandbox.User, ctx context.Context, group string) error) func(*call) (any, error) {
	return op(func(c *call, sb *sandbox.Sandbox, a groupArgs) (any, error) {
		u, err := sb.AsUser(a.Username)
		if err != nil {
			return nil, err
		}
		return nil, do(u, c.ctx, a.Groupname)
	})
}

// localArgs are the arguments of operations on the local machine.
type localArgs struct {
	Path, UTF8 string
	JSON       bool
	Times      []string
	Set        map[string]string
	Unset      []string
	Ms         float64
	Count      int
	Branches   [][]Step
}

func opLocalFile(_ *call, _ any, a localArgs) (any, error) {
	info, err := os.Stat(a.Path)
	if err != nil {
		return object{"exists": false}, nil
	}
	raw := must(os.ReadFile(a.Path))
	mode := fmt.Sprintf("0%o", info.Mode().Perm())
	if !a.JSON {
		out := normValue(raw).(object)
		out["mode"] = mode
		return out, nil
	}
	value := decoded[object](raw)
	now := float64(time.Now().UnixMilli()) / 1000
	for _, k := range a.Times {
		in := object{"inSeconds": nil}
		if t, ok := value[k].(float64); ok {
			in["inSeconds"] = math.Round((t-now)/60) * 60
		}
		value[k] = in
	}
	return object{"mode": mode, "json": normDeep(value)}, nil
}

func opParallel(c *call, _ any, a localArgs) (any, error) {
	c.d.inParallel.Add(1)
	defer c.d.inParallel.Add(-1)
	all := make([]any, len(a.Branches))
	var wg, ready sync.WaitGroup
	ready.Add(len(a.Branches))
	for i, steps := range a.Branches {
		wg.Go(func() {
			ready.Done()
			ready.Wait() // all branches begin at the same time
			results := []any{}
			for j := range steps {
				results = append(results, c.d.step(c.ctx, &steps[j], true))
			}
			all[i] = results
		})
	}
	wg.Wait()
	return all, nil
}

// proxyTexts maps the errors of package proxy to JavaScript's texts. JavaScript's other texts
// are those of a library, and are not compared.
var proxyTexts = map[error]string{
	proxy.ErrMissingHeaders: "Missing required proxy headers",
	proxy.ErrInvalidURL:     "Invalid proxied request URL",
	proxy.ErrMissingIssuer:  "Missing OIDC issuer",
	proxy.ErrInvalidIssuer:  "Invalid OIDC issuer",
	proxy.ErrMissingClaims:  "Missing required claims in OIDC token",
}

type proxyArgs struct {
	Request struct {
		URL, Method string
		Headers     map[string]string
		Body        *string
	}
	Respond struct {
		Status int
		Body   *string
	}
	CustomInvalid bool
}

func opProxy(c *call, _ any, a proxyArgs) (any, error) {
	var body io.Reader
	if a.Request.Body != nil {
		body = strings.NewReader(*a.Request.Body)
	}
	r := httptest.NewRequest(cmp.Or(a.Request.Method, http.MethodGet), a.Request.URL, body)
	if body != nil { // in JavaScript, a Request with a string has this content type
		r.Header.Set("Content-Type", "text/plain;charset=UTF-8")
	}
	for k, v := range a.Request.Headers {
		r.Header.Set(k, v)
	}

	value := object{}
	opts := &proxy.Options{HTTPClient: c.d.http, Keys: c.d.keys}
	if a.CustomInvalid {
		opts.Invalid = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := proxy.ErrorFromContext(r.Context())
			seen := seenRequest(r, !errors.Is(err, proxy.ErrMissingHeaders) && !errors.Is(err, proxy.ErrInvalidURL))
			seen["error"] = "…"
			for e, text := range proxyTexts {
				if errors.Is(err, e) {
					seen["error"] = text
				}
			}
			value["invalid"] = seen
			w.WriteHeader(499)
			_, _ = io.WriteString(w, "custom")
		})
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := seenRequest(r, true)
		if m, ok := proxy.FromContext(r.Context()); ok {
			seen["meta"] = object{
				"host": m.Host, "teamId": m.TeamID, "projectId": m.ProjectID, "sandboxId": m.SandboxID, "sandboxName": m.SandboxName,
			}
		}
		value["handler"] = seen
		text := "ok"
		if a.Respond.Body != nil {
			text = *a.Respond.Body
		}
		w.WriteHeader(cmp.Or(a.Respond.Status, http.StatusOK))
		_, _ = io.WriteString(w, text)
	})
	w := httptest.NewRecorder()
	proxy.Handler(next, opts).ServeHTTP(w, r.WithContext(c.ctx))
	value["status"], value["body"] = float64(w.Code), normText(w.Body.String())
	return value, nil
}

// seenRequest describes a request that a handler has received. In JavaScript, a header contains
// the original host, but none contains the host that has received the request.
func seenRequest(r *http.Request, original bool) object {
	body, _ := io.ReadAll(r.Body)
	headers := []any{}
	for k, values := range r.Header {
		headers = append(headers, []any{strings.ToLower(k), strings.Join(values, ", ")})
	}
	if original {
		headers = append(headers, []any{"host", r.Host})
	}
	slices.SortFunc(headers, func(a, b any) int {
		return strings.Compare(a.([]any)[0].(string), b.([]any)[0].(string))
	})
	return object{"url": r.URL.String(), "method": r.Method, "headers": headers, "body": normText(string(body))}
}
