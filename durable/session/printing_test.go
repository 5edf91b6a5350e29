package session_test

import (
	"reflect"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/durable/session/sessiontest"
	"github.com/go-vercel/sandbox/internal/test/printing"
)

// TestPrinting prints every exported type of the module, and some values. Their JSON hides
// nothing, because histories contain it.
func TestPrinting(t *testing.T) {
	t.Parallel()
	module := printing.Module{Dir: "..", Whole: true, Roots: []reflect.Type{
		reflect.TypeFor[durable.Sandbox](), reflect.TypeFor[durable.Worker](), reflect.TypeFor[durable.Record](),
		reflect.TypeFor[durable.RunOptions](), reflect.TypeFor[durable.Result](), reflect.TypeFor[durable.Command](),
		reflect.TypeFor[durabletest.Env](), reflect.TypeFor[durabletest.Options](),
		reflect.TypeFor[session.Client](), reflect.TypeFor[session.HandlerOptions](), reflect.TypeFor[session.Conversations](),
		reflect.TypeFor[session.State](), reflect.TypeFor[session.DestroyOptions](), reflect.TypeFor[session.Event](),
		reflect.TypeFor[sessiontest.Env](), reflect.TypeFor[sessiontest.Options](),
	}}
	module.Print(t)
	opts := durable.Options{
		Git: &durable.Git{URL: "https://user:" + printing.Mark + "@git.example/x.git?token=" + printing.Mark, Revision: "main"},
		NetworkPolicy: &sandbox.NetworkPolicy{Rules: map[string][]sandbox.PolicyRule{
			"a.example": {{Transform: []sandbox.PolicyTransform{{Headers: sandbox.PolicyHeaders{"Authorization": printing.Mark}}}}},
		}},
	}
	secret := session.Command{Command: "echo " + printing.Mark, Key: "k", Secret: true}
	for name, v := range map[string]any{
		"git": opts.Git, "options": &opts, "sandbox": &durable.Sandbox{Options: opts}, "options of a client": &session.Options{Defaults: opts},
		"options of a start": &session.StartOptions{Sandbox: &opts}, "a secret command": &secret,
	} {
		module.Hidden(t, name, v)
	}
}
