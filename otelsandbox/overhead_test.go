package otelsandbox_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/observe"
	"github.com/go-vercel/sandbox/otelsandbox"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

type nopObserver struct{}

func (nopObserver) Begin(ctx context.Context, _ observe.Event) context.Context { return ctx }
func (nopObserver) End(context.Context, observe.Event)                         {}

// BenchmarkRunCommand measures the cost of an observer: without one, with one that does nothing, and
// with spans and metrics but sampling off. The case rtt-observed of tools/perf measures it over
// connections, in pairs.
func BenchmarkRunCommand(b *testing.B) {
	otel, err := otelsandbox.New(&otelsandbox.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
	require.NoError(b, err)
	stream := fmt.Sprintf(canned.Command, "null") + "\n" + `{"data":"hello\n","stream":"stdout"}` + "\n" + fmt.Sprintf(canned.Command, "0") + "\n"
	for name, o := range map[string]observe.Observer{"nil": nil, "silent": nopObserver{}, "otel": otel} {
		c, err := sandbox.NewClient(&sandbox.ClientOptions{
			BaseURL: "https://api.test", Observer: o, Credentials: auth.Static(auth.Credentials{Token: "token", TeamID: "team", ProjectID: "project"}),
			HTTPClient: &http.Client{Transport: canned.Responses(func(req *http.Request) (string, string) {
				if strings.HasSuffix(req.URL.Path, "/cmd") {
					return "application/x-ndjson", stream
				}
				return "application/json", `{"sandbox":` + fmt.Sprintf(canned.Sandbox, 0) + `,"session":` + canned.Session + `,"routes":[]}`
			})},
		})
		require.NoError(b, err)
		sb, err := c.Create(b.Context(), nil)
		require.NoError(b, err)
		run := func() {
			if _, err := sb.RunCommand(b.Context(), "echo", []string{"hello"}, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
