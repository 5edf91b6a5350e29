package oidctest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Machine is a home, a working directory below a folder of its own, and an
// environment.
type Machine struct {
	Home, Dir string

	t   testing.TB
	mu  sync.Mutex
	env map[string]string
}

// NewMachine makes a machine on which nothing is installed.
func NewMachine(t testing.TB) *Machine {
	t.Helper()
	top := t.TempDir()
	m := &Machine{Home: filepath.Join(top, "home"), Dir: filepath.Join(top, "work"), t: t, env: map[string]string{}}
	for _, dir := range []string{m.Home, m.Dir} {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	m.Set("HOME", m.Home)
	m.Set("XDG_DATA_HOME", filepath.Join(m.Home, "data")) // the same on every system
	return m
}

// Set sets a variable; "" takes it away.
func (m *Machine) Set(key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.env[key] = value
}

// LookupEnv reads a variable.
func (m *Machine) LookupEnv(key string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value := m.env[key]
	return value, value != ""
}

// Getenv reads a variable.
func (m *Machine) Getenv(key string) string {
	value, _ := m.LookupEnv(key)
	return value
}

// LoginFile is where the CLI's login is.
func (m *Machine) LoginFile() string {
	return filepath.Join(m.Home, "data", "com.vercel.cli", "auth.json")
}

// TokenFile is where a project's token is stored.
func (m *Machine) TokenFile(projectID string) string {
	return filepath.Join(m.Home, "data", "com.vercel.token", projectID+".json")
}

// LinkFile links the working directory.
func (m *Machine) LinkFile() string {
	return filepath.Join(m.Dir, ".vercel", "project.json")
}

// Link links the working directory to a project.
func (m *Machine) Link(teamID, projectID string) {
	m.t.Helper()
	m.Write(m.LinkFile(), map[string]string{"projectId": projectID, "orgId": teamID})
}

// Write writes a file: a text as it is, another value as JSON.
func (m *Machine) Write(file string, content any) {
	m.t.Helper()
	text, ok := content.(string)
	if !ok {
		data, err := json.Marshal(content)
		require.NoError(m.t, err)
		text = string(data)
	}
	require.NoError(m.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(m.t, os.WriteFile(file, []byte(text), 0o644))
}

// Read reads a file of JSON.
func (m *Machine) Read(file string) map[string]any {
	m.t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(m.t, err)
	var content map[string]any
	require.NoError(m.t, json.Unmarshal(data, &content))
	return content
}
