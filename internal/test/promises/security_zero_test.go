package promises_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/auth/device"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/observe"
	"github.com/go-vercel/sandbox/outputs"
	"github.com/go-vercel/sandbox/pool"
	"github.com/go-vercel/sandbox/preview"
	"github.com/go-vercel/sandbox/proxy"
	"github.com/go-vercel/sandbox/terminal"
	"github.com/go-vercel/sandbox/tunnel"

	"github.com/stretchr/testify/assert"
)

// TestNilAndZeroInLogs: nil and zero values of every type can be logged without a panic.
func TestNilAndZeroInLogs(t *testing.T) {
	t.Parallel()
	for name, typ := range publicTypes(t) {
		values := map[string]any{"zero": reflect.New(typ).Interface()}
		if !typ.Implements(reflect.TypeFor[slog.LogValuer]()) {
			values["nil"] = reflect.Zero(reflect.PointerTo(typ)).Interface() // log/slog handles a nil pointer to a LogValuer itself
		}
		for what, v := range values {
			var b bytes.Buffer
			slog.New(slog.NewTextHandler(&b, nil)).Info("message", "value", v)
			slog.New(slog.NewJSONHandler(&b, nil)).Info("message", "value", v)
			assert.NotContains(t, strings.ToLower(b.String()), "panic", "%s %s", what, name)
			for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
				assert.NotContains(t, fmt.Sprintf(verb, v), "PANIC", "%s of %s %s", verb, what, name)
			}
			if err, ok := v.(error); ok && what == "zero" {
				assert.NotPanics(t, func() { _ = err.Error() }, name)
			}
		}
	}
}

// TestMisuse: in every package, a mistake in a call returns an error of one line.
func TestMisuse(t *testing.T) {
	t.Parallel()
	found := map[string][]reflect.Type{}
	for _, typ := range publicTypes(t) {
		found[typ.PkgPath()] = append(found[typ.PkgPath()], typ)
	}
	for pkg, x := range map[string]testkit.Exports{
		"": {
			Types: found[module],
			Funcs: map[string]any{
				"AllowAll": sandbox.AllowAll, "ContextWithClient": sandbox.ContextWithClient, "Create": sandbox.Create,
				"DefaultClient": sandbox.DefaultClient, "DenyAll": sandbox.DenyAll, "Fork": sandbox.Fork, "Get": sandbox.Get,
				"GetOrCreate": sandbox.GetOrCreate, "List": sandbox.List, "NewClient": sandbox.NewClient,
				"ParseNetworkPolicy": sandbox.ParseNetworkPolicy, "ParseSignal": sandbox.ParseSignal, "Version": sandbox.Version,
			},
			Except: map[string]string{"nil Cmd.": "a nil Cmd panics as that of os/exec", "function ContextWithClient": "as context.WithValue does"},
		},
		"agent": {
			Types: []reflect.Type{reflect.TypeFor[agent.Call](), reflect.TypeFor[agent.Program](), reflect.TypeFor[agent.Conversations](), reflect.TypeFor[agent.SessionsFunc](), reflect.TypeFor[agent.Toolset]()},
			Funcs: map[string]any{
				"Refuse": agent.Refuse, "WithProgress": agent.WithProgress, "NewConversations": agent.NewConversations, "ByName": agent.ByName,
				"CommandLine": agent.CommandLine, "ForConversation": agent.ForConversation, "ForProject": agent.ForProject, "New": agent.New,
			},
			Except: map[string]string{"function WithProgress": "as context.WithValue does", "zero SessionsFunc.": "a nil function"},
		},
		"auth": {
			Types: append(found[module+"/auth"], reflect.TypeFor[auth.ProviderFunc]()),
			Funcs: map[string]any{
				"ContextWithToken": auth.ContextWithToken, "TokenHandler": auth.TokenHandler, "Env": auth.Env, "Static": auth.Static, "CLI": auth.CLI,
				"Cache": auth.Cache, "Chain": auth.Chain, "Default": auth.Default, "OIDC": auth.OIDC, "Token": auth.Token,
			},
			Except: map[string]string{"function ContextWithToken": "as context.WithValue does", "zero ProviderFunc.": "a nil function"},
		},
		"auth/device": {Funcs: map[string]any{"Login": device.Login, "PromptOn": device.PromptOn}},
		"observe":     {Types: []reflect.Type{reflect.TypeFor[observe.Event]()}, Funcs: map[string]any{"Multi": observe.Multi, "Start": observe.Start}},
		"outputs": {
			Types:  []reflect.Type{reflect.TypeFor[outputs.HeadTail](), reflect.TypeFor[outputs.Lines](), reflect.TypeFor[outputs.Tail]()},
			Funcs:  map[string]any{"Limit": outputs.Limit, "NewLines": outputs.NewLines},
			Except: map[string]string{"nil ": "nil writers panic as a nil bytes.Buffer"},
		},
		"pool": {
			Types: []reflect.Type{reflect.TypeFor[pool.Box](), reflect.TypeFor[pool.Options](), reflect.TypeFor[pool.Pool]()}, Funcs: map[string]any{"New": pool.New},
		},
		"preview": {
			Types: found[module+"/preview"], Funcs: map[string]any{"ReverseProxy": preview.ReverseProxy, "Transport": preview.Transport},
			Except: map[string]string{"nil Proxy.ServeHTTP": "as httputil.ReverseProxy", "zero Proxy.ServeHTTP": "as httputil.ReverseProxy"},
		},
		"proxy": {
			Types: found[module+"/proxy"],
			Funcs: map[string]any{
				"ErrorFromContext": proxy.ErrorFromContext, "Handler": proxy.Handler, "NewForwarder": proxy.NewForwarder,
				"FromContext": proxy.FromContext, "StaticSecret": proxy.StaticSecret,
			},
			Except: map[string]string{
				"nil Forwarder.ServeHTTP": "as httputil.ReverseProxy", "zero Forwarder.ServeHTTP": "as httputil.ReverseProxy",
				"function ErrorFromContext": "as the Value of a nil context", "function FromContext": "as the Value of a nil context",
			},
		},
		"terminal": {
			Types: found[module+"/terminal"], Funcs: map[string]any{"Attach": terminal.Attach, "Open": terminal.Open, "Run": terminal.Run},
		},
		"tunnel": {
			Types: []reflect.Type{reflect.TypeFor[tunnel.Conn](), reflect.TypeFor[tunnel.Dialer]()},
			Funcs: map[string]any{"Dial": tunnel.Dial, "Forward": tunnel.Forward, "NewDialer": tunnel.NewDialer},
		},
	} {
		t.Run(path.Join("sandbox", pkg), func(t *testing.T) {
			x.Dir = filepath.Join("../../..", pkg)
			x.Misuse(t)
		})
	}
}
