package promises_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/internal/wire"
)

// limit is a limit on a field of the request that creates a sandbox, and on the option for
// this field.
type limit struct {
	name      string
	good, bad int // values at the limit and beyond it
	options   func(n int) sandbox.CreateOptions
	field     string
	sent      func(n int) any
	// lenient is the reason why the client does not check the limit. It is empty if the
	// client does.
	lenient string
}

func text(n int) string { return strings.Repeat("é", n) } // n characters of two bytes

func numbered(n int) (list []int, tags map[string]string) {
	tags = map[string]string{}
	for i := range n {
		list, tags[fmt.Sprint(i)] = append(list, 3000+i), ""
	}
	return list, tags
}

var limits = []limit{
	{"name", wire.MaxName, wire.MaxName + 1, func(n int) sandbox.CreateOptions { return sandbox.CreateOptions{Name: strings.Repeat("n", n)} },
		"name", func(n int) any { return strings.Repeat("n", n) }, ""},
	{"tags", wire.MaxTags, wire.MaxTags + 1, func(n int) sandbox.CreateOptions { _, tags := numbered(n); return sandbox.CreateOptions{Tags: tags} },
		"tags", func(n int) any { _, tags := numbered(n); return tags }, ""},
	{"key of a tag", wire.MaxTagKey, wire.MaxTagKey + 1, func(n int) sandbox.CreateOptions {
		return sandbox.CreateOptions{Tags: map[string]string{text(n): ""}}
	}, "tags", func(n int) any { return map[string]string{text(n): ""} }, ""},
	{"value of a tag", wire.MaxTagValue, wire.MaxTagValue + 1, func(n int) sandbox.CreateOptions {
		return sandbox.CreateOptions{Tags: map[string]string{"k": text(n)}}
	}, "tags", func(n int) any { return map[string]string{"k": text(n)} }, ""},
	{"shortest key of a tag", 1, 0, func(n int) sandbox.CreateOptions {
		return sandbox.CreateOptions{Tags: map[string]string{text(n): ""}}
	}, "tags", func(n int) any { return map[string]string{text(n): ""} }, ""},
	{"shortest name of a variable", 1, 0, func(n int) sandbox.CreateOptions { return sandbox.CreateOptions{Env: sandbox.Env{text(n): "v"}} },
		"env", func(n int) any { return map[string]string{text(n): "v"} }, ""},
	{"= in the name of a variable", 0, 1, func(n int) sandbox.CreateOptions {
		return sandbox.CreateOptions{Env: sandbox.Env{"K" + strings.Repeat("=", n): "v"}}
	}, "env", func(n int) any { return map[string]string{"K" + strings.Repeat("=", n): "v"} }, ""},
	{"NUL in the name of a variable", 0, 1, func(n int) sandbox.CreateOptions {
		return sandbox.CreateOptions{Env: sandbox.Env{"K" + strings.Repeat("\x00", n): "v"}}
	}, "env", func(n int) any { return map[string]string{"K" + strings.Repeat("\x00", n): "v"} }, ""},
	{"NUL in a variable", 0, 1, func(n int) sandbox.CreateOptions {
		return sandbox.CreateOptions{Env: sandbox.Env{"K": strings.Repeat("\x00", n)}}
	},
		"env", func(n int) any { return map[string]string{"K": strings.Repeat("\x00", n)} }, ""},
	// The limit applies to the JSON of the environment.
	{"environment", wire.MaxEnv - len(`{"K":""}`), wire.MaxEnv, func(n int) sandbox.CreateOptions {
		return sandbox.CreateOptions{Env: sandbox.Env{"K": strings.Repeat("v", n)}}
	}, "env", func(n int) any { return map[string]string{"K": strings.Repeat("v", n)} }, ""},
	{"lowest port", wire.MinPort, wire.MinPort - 1, port, "ports", onePort, ""},
	{"highest port", wire.MaxPort, wire.MaxPort + 1, port, "ports", onePort, ""},
	{"reserved port", wire.ReservedPort + 1, wire.ReservedPort, port, "ports", onePort, "the service may stop reserving it"},
	// The service has accepted one port less than the maximum, and has responded to the
	// maximum with status 500.
	{"ports", wire.MaxPorts - 1, wire.MaxPorts + 1, func(n int) sandbox.CreateOptions { list, _ := numbered(n); return sandbox.CreateOptions{Ports: list} },
		"ports", func(n int) any { list, _ := numbered(n); return list }, ""},
	{"odd vCPUs", 4, 3, vcpus, "resources", oneSize, ""},
	{"most vCPUs", wire.MaxVCPUs, wire.MaxVCPUs + 2, vcpus, "resources", oneSize, "the plan's limit is lower"},
	{"shortest timeout", int(wire.MinTimeout.Milliseconds()), int(wire.MinTimeout.Milliseconds()) - 1, timeout, "timeout", millis, ""},
	{"longest timeout", int(wire.MaxTimeout.Milliseconds()), int(wire.MaxTimeout.Milliseconds()) + 1, timeout, "timeout", millis, ""},
	{"expiration", int(wire.MinExpiration.Milliseconds()), int(wire.MinExpiration.Milliseconds()) - 1, func(n int) sandbox.CreateOptions {
		return sandbox.CreateOptions{SnapshotExpiration: time.Duration(n) * time.Millisecond}
	}, "snapshotExpiration", millis, ""},
	{"fewest kept snapshots", 1, -1, kept, "keepLastSnapshots", keptCount, ""},
	{"kept snapshots", wire.MaxKeptSnapshots, wire.MaxKeptSnapshots + 1, kept, "keepLastSnapshots", keptCount, ""},
	{"mounts", wire.MaxMounts, wire.MaxMounts + 1, func(n int) sandbox.CreateOptions {
		mounts := map[string]sandbox.Mount{}
		for i := range n {
			mounts[fmt.Sprintf("/d%d", i)] = sandbox.Mount{Drive: fmt.Sprintf("d%d", i)}
		}
		return sandbox.CreateOptions{Mounts: mounts}
	}, "mounts", func(n int) any {
		mounts := map[string]any{}
		for i := range n {
			mounts[fmt.Sprintf("/d%d", i)] = map[string]string{"drive": fmt.Sprintf("d%d", i), "mode": "read-write"}
		}
		return mounts
	}, ""},
}

func port(n int) sandbox.CreateOptions  { return sandbox.CreateOptions{Ports: []int{n}} }
func onePort(n int) any                 { return []int{n} }
func vcpus(n int) sandbox.CreateOptions { return sandbox.CreateOptions{VCPUs: n} }
func oneSize(n int) any                 { return map[string]int{"vcpus": n} }
func timeout(n int) sandbox.CreateOptions {
	return sandbox.CreateOptions{Timeout: time.Duration(n) * time.Millisecond}
}
func millis(n int) any    { return int64(n) }
func keptCount(n int) any { return map[string]int{"count": n} }
func kept(n int) sandbox.CreateOptions {
	return sandbox.CreateOptions{KeepLastSnapshots: &sandbox.KeepLastSnapshots{Count: n}}
}

// TestLimitsAgree: the client and the emulator both accept a value at the limit, and both
// refuse a value beyond it.
func TestLimitsAgree(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	for i := range wire.MaxMounts + 1 {
		_, err := c.GetOrCreateDrive(t.Context(), fmt.Sprintf("d%d", i), nil)
		require.NoError(t, err)
	}
	for _, l := range limits {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			create := func(n int) error {
				opts := l.options(n)
				sb, err := c.Create(t.Context(), &opts)
				if err == nil {
					err = sb.Delete(t.Context(), nil)
				}
				return err
			}
			asked := func(n int) int {
				creds := srv.Credentials()
				body, err := json.Marshal(map[string]any{"projectId": creds.ProjectID, l.field: l.sent(n)})
				require.NoError(t, err)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v3/sandboxes?teamId="+creds.TeamID, bytes.NewReader(body))
				require.NoError(t, err)
				req.Header.Set("Authorization", "Bearer "+creds.Token)
				req.Header.Set("Content-Type", "application/json")
				resp, err := testkit.Transport(t).RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return resp.StatusCode
			}
			assert.NoError(t, create(l.good))
			err := create(l.bad)
			if l.lenient == "" {
				assert.ErrorIs(t, err, sandbox.ErrInvalid)
			}
			assert.Error(t, err)
			assert.Equal(t, http.StatusOK, asked(l.good))
			assert.Equal(t, http.StatusBadRequest, asked(l.bad))
		})
	}
}

// TestOtherLimitsAgree is like TestLimitsAgree, but for commands, drives and listings.
func TestOtherLimitsAgree(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	sb, err := c.Create(t.Context(), nil)
	require.NoError(t, err)
	snapshot, err := sb.Snapshot(t.Context(), nil)
	require.NoError(t, err)
	run := func(opts sandbox.CommandOptions) error {
		_, err := sb.RunCommand(t.Context(), "true", nil, &opts)
		return err
	}
	for name, l := range map[string]struct {
		good, bad int
		call      func(n int) error
	}{
		"command ID":                   {wire.MaxCommandID, wire.MaxCommandID + 1, func(n int) error { return run(sandbox.CommandOptions{ID: strings.Repeat("i", n)}) }},
		"minimum timeout of a command": {int(wire.MinCommandTimeout.Milliseconds()), int(wire.MinCommandTimeout.Milliseconds()) - 1, func(n int) error { return run(sandbox.CommandOptions{Timeout: time.Duration(n) * time.Millisecond}) }},
		"maximum timeout of a command": {int(wire.MaxCommandTimeout.Milliseconds()), int(wire.MaxCommandTimeout.Milliseconds()) + 1, func(n int) error { return run(sandbox.CommandOptions{Timeout: time.Duration(n) * time.Millisecond}) }},
		"= in the name of a command's variable": {0, 1, func(n int) error {
			return run(sandbox.CommandOptions{Env: sandbox.Env{"K" + strings.Repeat("=", n): "v"}})
		}},
		"name of a drive": {wire.MaxDriveName, wire.MaxDriveName + 1, func(n int) error {
			_, err := c.GetOrCreateDrive(t.Context(), strings.Repeat("d", n), nil)
			return err
		}},
		"limit of a page": {wire.MaxPage, wire.MaxPage + 1, func(n int) error {
			_, err := c.ListPage(t.Context(), &sandbox.ListOptions{Limit: n})
			return err
		}},
		"limit of a page of a tree": {wire.MaxTreePage, wire.MaxTreePage + 1, func(n int) error {
			_, err := c.SnapshotTreePage(t.Context(), snapshot.ID(), &sandbox.SnapshotTreeOptions{Limit: n})
			return err
		}},
	} {
		assert.NoError(t, l.call(l.good), name)
		assert.ErrorIs(t, l.call(l.bad), sandbox.ErrInvalid, name)
	}
}
