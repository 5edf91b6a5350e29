package main

import (
	_ "embed"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// nodeHook and pythonHook make Node and Python programs use the server: the official
// clients of both have the platform's address built in.
var (
	//go:embed hook.mjs
	nodeHook []byte
	//go:embed hook.py
	pythonHook []byte
)

// hooks is a temporary folder with the files that Node and Python programs load.
type hooks struct{ dir string }

func writeHooks() (*hooks, error) {
	dir, err := os.MkdirTemp("", "sandbox-emulator-")
	if err != nil {
		return nil, err
	}
	h := &hooks{dir}
	for name, text := range map[string][]byte{"hook.mjs": nodeHook, "sitecustomize.py": pythonHook} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			_ = h.remove() // the first error counts
			return nil, err
		}
	}
	return h, nil
}

func (h *hooks) remove() error { return os.RemoveAll(h.dir) }

// environment returns base with the variables that make every client use the server.
func (h *hooks) environment(server *sandboxtest.Server, base []string) []string {
	env := slices.DeleteFunc(append(slices.Clone(base), server.Environ()...), func(kv string) bool {
		key, _, _ := strings.Cut(kv, "=")
		switch key {
		case "VERCEL_OIDC_TOKEN", "NODE_OPTIONS", "PYTHONPATH": // the method clients sets these
			return true
		}
		return false
	})
	return append(env, h.clients(server, base)...)
}

// clients returns the variables that make the clients of other languages use the server,
// in addition to those of [sandboxtest.Server.Environ]. It keeps the options that these
// variables have in base.
func (h *hooks) clients(server *sandboxtest.Server, base []string) []string {
	set := make(map[string]string)
	for _, kv := range base {
		key, value, _ := strings.Cut(kv, "=")
		set[key] = value
	}
	hook := (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(h.dir, "hook.mjs"))}).String()
	return []string{
		"VERCEL_OIDC_TOKEN=" + server.OIDCToken(),
		"NODE_OPTIONS=" + strings.TrimSpace(set["NODE_OPTIONS"]+" --import="+hook),
		"PYTHONPATH=" + strings.TrimSuffix(h.dir+string(os.PathListSeparator)+set["PYTHONPATH"], string(os.PathListSeparator)),
		// Programs that use an emulator send no telemetry.
		"VERCEL_SANDBOX_TELEMETRY_DISABLED=1",
	}
}
