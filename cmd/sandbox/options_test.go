package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// optionRow is an option of a command and its effect on the request, in the API's words:
// fields that are merged into the body, where null removes a field; or, after a leading
// "?", the query.
type optionRow struct{ option, changes string }

// settings are the options that create and fork share.
var settings = []optionRow{
	{"--name=a-name", `{"name":"a-name"}`},
	{"--non-persistent", `{"persistent":false}`},
	{"--timeout=17m", `{"timeout":1020000}`},
	{"--vcpus=4", `{"resources":{"vcpus":4}}`},
	{"--publish-port=3001 --publish-port=8080", `{"ports":[3001,8080]}`},
	{"--env=A=1 --env=B=two", `{"env":{"A":"1","B":"two"}}`},
	{"--env-file=vars.env", `{"env":{"C":"3"}}`},
	{"--tag=k=v", `{"tags":{"k":"v"}}`},
	{"--region=fra1", `{"region":"fra1"}`},
	{"--failover-regions=lhr1,cdg1", `{"failoverRegions":["lhr1","cdg1"]}`},
	{"--network-id=net_12345678", `{"networkId":"net_12345678"}`},
	{"--snapshot-expiration=3d", `{"snapshotExpiration":259200000}`},
	{"--keep-last-snapshots=3", `{"keepLastSnapshots":{"count":3}}`},
	{"--keep-last-snapshots=3 --keep-last-snapshots-for=2d", `{"keepLastSnapshots":{"count":3,"expiration":172800000}}`},
	{"--keep-last-snapshots=3 --delete-evicted-snapshots=false", `{"keepLastSnapshots":{"count":3,"deleteEvicted":false}}`},
	{"--network-policy=deny-all", `{"networkPolicy":{"mode":"deny-all"}}`},
	{"--allowed-domain=a.example --allowed-domain=b.example", `{"networkPolicy":{"allow":["a.example","b.example"]}}`},
	{"--allowed-cidr=10.1.0.0/16", `{"networkPolicy":{"subnets":{"allow":["10.1.0.0/16"]}}}`},
	{"--allowed-domain=a.example --denied-cidr=10.2.0.0/16", `{"networkPolicy":{"allow":["a.example"],"subnets":{"deny":["10.2.0.0/16"]}}}`},
	{"--network-policy-file=policy.json", `{"networkPolicy":{"allow":["c.example"]}}`},
}

// optionCommands are commands with all of their options. Each option has a row, or a reason
// why it does not appear in a request.
var optionCommands = []struct {
	command   []string
	operation sandboxtest.Operation
	rows      []optionRow
	here      map[string]string
}{
	{
		[]string{"create", "--silent"}, sandboxtest.CreateSandbox,
		append(slices.Clone(settings), []optionRow{
			{"--image=vercel/sandbox/ubuntu", `{"image":"vercel/sandbox/ubuntu"}`},
			{"--runtime=node24", `{"runtime":"node24"}`},
			{"--architecture=arm64", `{"architecture":"arm64"}`},
			{"--mount=disk:/data:read-write", `{"mounts":{"/data":{"drive":"disk","mode":"read-write"}}}`},
			{"--snapshot=SNAPSHOT", `{"source":{"type":"snapshot","snapshotId":"SNAPSHOT"}}`},
		}...),
		map[string]string{
			"credentials": "needs an emulator with a firewall, as root: internal/test/promises TestCreate has the field",
			"git":         fetched, "depth": fetched, "tarball": fetched, "upload": "written after the creation", "connect": "opens a shell",
			"silent": printed,
		},
	},
	{
		[]string{"exec", "box", "true"}, sandboxtest.RunCommand,
		[]optionRow{
			{"--sudo", `{"sudo":true}`},
			{"--workdir=/tmp", `{"cwd":"/tmp"}`},
			{"--env=A=1", `{"env":{"A":"1"}}`},
			{"--env-file=vars.env", `{"env":{"C":"3"}}`},
			{"--timeout=30s", `{"timeout":30000}`},
			{"--interactive", `{"attachStdin":true,"logs":null,"wait":null}`}, // the command reads the output in another request
			{"--stdin", `{"attachStdin":true,"logs":null,"wait":null}`},
		},
		map[string]string{
			"user": "runs the command by sudo", "tty": terminal, "no-tty": terminal, "no-extend-timeout": "is about the end of the session: see TestLongCommand", "no-echo": printed,
			"detach": "does not wait", "binary": "encodes the output", "kill-on-exit": "is about the end of this program", "stop": "another request",
		},
	},
	{
		[]string{"list"}, sandboxtest.ListSandboxes,
		[]optionRow{
			{"--name-prefix=b", "?sortBy=name&namePrefix=b&status="},
			{"--sort-by=name", "?sortBy=name&status="},
			{"--sort-order=asc", "?sortOrder=asc"},
			{"--tag=k=v", "?tags=k:v"},
			{"--limit=7 --all", "?limit=7&status="},
			{"--status=stopped", "?status=stopped"},
			{"--status=stopped,failed", "?status="},
		},
		map[string]string{
			"cursor": "is one that the API has given: see the scripts of listings",
		},
	},
	{
		[]string{"drives", "get-or-create", "new"}, sandboxtest.GetOrCreateDrive,
		[]optionRow{{"--max-size=5GiB", `{"maxSizeBytes":5368709120}`}, {"--region=fra1", `{"region":"fra1"}`}}, nil,
	},
	{
		[]string{"fork", "box", "--silent"}, sandboxtest.ForkSandbox, settings,
		map[string]string{"connect": "opens a shell", "silent": printed},
	},
}

const (
	terminal = "is about terminals"
	fetched  = "the emulator would fetch it: see the scripts of sources"
	printed  = "is about what is printed"
)

// TestEveryOption runs each command with each of its options, and looks for the option in
// the request.
func TestEveryOption(t *testing.T) {
	t.Parallel()
	for _, c := range optionCommands {
		t.Run(c.command[0], func(t *testing.T) {
			t.Parallel()
			d := newWorkspace(t, nil)
			d.write("vars.env", "C=3\n")
			d.write("policy.json", `{"allow":["c.example"]}`)
			d.ok("drives", "get-or-create", "disk")
			d.ok("create", "--name=other", "--silent")
			snapshot := regexp.MustCompile(`snap_\w+`).FindString(d.ok("snapshot", "--stop", "other"))
			require.NotEmpty(t, snapshot)
			d.ok("create", "--name=box", "--silent")

			sent := func(options ...string) (body map[string]any, query url.Values) {
				if c.operation == sandboxtest.GetOrCreateDrive {
					_ = d.run("", "drives", "delete", "new")
				}
				d.seen()
				words := 1 // the words of the command; options come only after them
				if c.command[0] == "drives" {
					words = 2
				}
				d.ok(slices.Concat(c.command[:words], options, c.command[words:])...)
				for _, r := range d.seen() {
					if r.Operation == c.operation {
						if len(r.Body) > 0 {
							require.NoError(t, json.Unmarshal(r.Body, &body))
						}
						r.Query.Del("cmdId") // differs each time
						if env, ok := body["env"].(map[string]any); ok {
							delete(env, "GO_SANDBOX_COMMAND") // differs each time, too
						}
						return body, r.Query
					}
				}
				t.Fatalf("%v makes no request to %s", c.command, c.operation)
				return nil, nil
			}
			base, baseQuery := sent()
			named := map[string]bool{}
			for name := range c.here {
				named[name] = true
			}
			for _, row := range c.rows {
				t.Run(row.option, func(t *testing.T) {
					want, wantQuery := maps.Clone(base), maps.Clone(baseQuery)
					if text, ok := strings.CutPrefix(row.changes, "?"); ok {
						changes, err := url.ParseQuery(text)
						require.NoError(t, err)
						maps.Copy(wantQuery, changes)
						maps.DeleteFunc(wantQuery, func(_ string, v []string) bool { return v[0] == "" })
					} else {
						var changes map[string]any
						require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(row.changes, "SNAPSHOT", snapshot)), &changes))
						maps.Copy(want, changes)
						maps.DeleteFunc(want, func(_ string, v any) bool { return v == nil })
					}
					var options []string
					for o := range strings.FieldsSeq(row.option) {
						options = append(options, strings.ReplaceAll(o, "SNAPSHOT", snapshot))
						name, _, _ := strings.Cut(strings.TrimPrefix(o, "--"), "=")
						named[name] = true
					}
					body, query := sent(options...)
					assert.Equal(t, want, body)
					assert.Equal(t, wantQuery, query)
				})
			}
			global := optionsOf(d.ok("version", "--help"))
			for _, name := range optionsOf(d.ok(append(slices.DeleteFunc(slices.Clone(c.command), func(w string) bool {
				return w == "box" || w == "true" || w == "new"
			}), "--help")...)) {
				assert.True(t, named[name] || slices.Contains(global, name), "--%s is in no request", name)
			}
		})
	}
}

// optionsOf returns the names of the options in a help text.
func optionsOf(help string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z][a-z-]*)`).FindAllStringSubmatch(help, -1) {
		names = append(names, m[1])
	}
	return names
}

// TestRequestTimeout: a server that accepts requests and never answers ends the command.
func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	d.env = append(d.env, "VERCEL_SANDBOX_BASE_URL="+server.URL)
	out := d.run("", "ls", "--request-timeout=10ms")
	assert.NotZero(t, out.code)
	assert.Contains(t, out.stderr, "timeout awaiting response headers")
}
