package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const sandboxJSON = `{"name":"box","persistent":true,"region":"iad1","vcpus":2,"memory":4096,"runtime":"node24","timeout":300000,` +
	`"networkPolicy":{"mode":"allow-all"},"totalEgressBytes":1000,"totalIngressBytes":2000,"totalActiveCpuDurationMs":1234,"totalDurationMs":56789,` +
	`"createdAt":1760000000000,"updatedAt":1760000000500,"currentSessionId":"sess_1","status":"running","statusUpdatedAt":1760000000200,` +
	`"cwd":"/vercel/sandbox","tags":{"env":"perf","team":"sdk"}}`

func page(sandboxes ...string) string {
	return `{"sandboxes":[` + strings.Join(sandboxes, ",") + `],"pagination":{"count":` + fmt.Sprint(len(sandboxes)) + `,"next":"abc"}}`
}

// usual are inputs that Decode reads itself.
var usual = []string{
	page(),
	page(sandboxJSON),
	page(sandboxJSON, sandboxJSON, `{"name":"other","region":"sfo1","status":"stopped","currentSessionId":""}`),
	` { "pagination" : { "next" : null , "count" : 1 } , "sandboxes" : [ { "vcpus" : -2 , "name" : "\u00e9\n" } ] } `,
	page(`{"name":"x","new":{"a":[1,2.5e-3,{"b":"\"c"}],"d":true,"e":false,"f":null},"snapshotExpiration":0,` +
		`"keepLastSnapshots":{"count":3,"expiration":1000,"deleteEvicted":false},"expiresAt":1760000000000.25,"timeout":1.5,` +
		`"image":"img","currentSnapshotId":"snap","networkPolicy":{"mode":"custom","allowedDomains":["a.com"],"allowedCIDRs":["10.0.0.0/8"],"deniedCIDRs":[],` +
		`"injectionRules":[{"domain":"a.com","headerNames":["x"]}],"forwardRules":[{"domain":"b.com","forwardURL":"https://c.com","match":{"path":{"exact":"/"}}}]},"tags":{}}`),
	page(`{"name":"x","region":null,"tags":null,"totalEgressBytes":null,"createdAt":null,"networkPolicy":null,"keepLastSnapshots":null}`),
	"{}",
}

// unusual are inputs, valid or not, that are left to encoding/json.
var unusual = []string{
	"", "null", "[]", "5", "{", "{}{}", "{}x", `{"sandboxes":[`, `{"sandboxes":[{}`, `{"sandboxes":{}}`, `{"sandboxes":[null]}`, `{"sandboxes":[],}`,
	`{"sandboxes":[{"name":5}]}`, `{"sandboxes":[{"name":"a","name":"b"}]}`, `{"sandboxes":[{"Name":"a"}]}`, `{"sandboxes":[{"vcpus":1.5}]}`,
	`{"sandboxes":[{"vcpus":01}]}`, `{"sandboxes":[{"vcpus":-}]}`, `{"sandboxes":[{"vcpus":12345678901234567890}]}`, `{"sandboxes":[{"persistent":1}]}`,
	`{"sandboxes":[{"x":tru}]}`, `{"sandboxes":[{"x":1.}]}`, `{"sandboxes":[{"x":1e}]}`, `{"sandboxes":[{"tags":{"a":null}}]}`,
	`{"sandboxes":[{"createdAt":"x"}]}`, `{"sandboxes":[{"networkPolicy":5}]}`, `{"sandboxes":[{"name":"a` + "\x01" + `"}]}`,
	`{"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "}", "{}\x00",
}

func TestDecodePage(t *testing.T) {
	for _, data := range usual {
		var got, want SandboxesPage
		require.NoError(t, json.Unmarshal([]byte(data), &want))
		assert.True(t, got.Decode([]byte(data)), data)
		assert.Equal(t, want, got, data)
	}
	for _, data := range unusual {
		got := SandboxesPage{Pagination: Pagination{Count: 7}}
		assert.False(t, got.Decode([]byte(data)), data)
		assert.Equal(t, SandboxesPage{Pagination: Pagination{Count: 7}}, got, "unchanged")
	}
}

func FuzzDecode(f *testing.F) {
	for _, data := range append(usual, unusual...) {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want SandboxesPage
		if got.Decode(data) {
			require.NoError(t, json.Unmarshal(data, &want))
			require.Equal(t, want, got)
		}
	})
}

func BenchmarkDecodePage(b *testing.B) {
	list := make([]string, 100)
	for i := range list {
		list[i] = strings.Replace(sandboxJSON, "box", fmt.Sprintf("box-%d", i), 1)
	}
	data := []byte(page(list...))
	b.Run("Decode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			var p SandboxesPage
			if !p.Decode(data) {
				b.Fatal("not decoded")
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			var p SandboxesPage
			if err := json.Unmarshal(data, &p); err != nil {
				b.Fatal(err)
			}
		}
	})
}
