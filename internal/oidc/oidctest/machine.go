package oidctest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Machine is a home directory, a working directory and an environment.
type Machine struct {
	Home, Dir string

	t   testing.TB
	mu  sync.Mutex
	env map[string]string
}

// NewMachine returns a machine on which nothing is installed.
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

// Set sets a variable; "" removes it.
func (m *Machine) Set(key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.env[key] = value
}

// LookupEnv looks up a variable.
func (m *Machine) LookupEnv(key string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value := m.env[key]
	return value, value != ""
}

// Getenv returns the value of a variable.
func (m *Machine) Getenv(key string) string {
	value, _ := m.LookupEnv(key)
	return value
}

// LoginFile returns the file of the CLI's login.
func (m *Machine) LoginFile() string {
	return filepath.Join(m.Home, "data", "com.vercel.cli", "auth.json")
}

// TokenFile returns the file of a project's token.
func (m *Machine) TokenFile(projectID string) string {
	return filepath.Join(m.Home, "data", "com.vercel.token", projectID+".json")
}

// LinkFile returns the file that links the working directory.
func (m *Machine) LinkFile() string {
	return filepath.Join(m.Dir, ".vercel", "project.json")
}

// Link links the working directory to a project.
func (m *Machine) Link(teamID, projectID string) {
	m.t.Helper()
	m.Write(m.LinkFile(), map[string]string{"projectId": projectID, "orgId": teamID})
}

// Write writes a file: a string unchanged, any other value as JSON.
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

// Read reads a JSON file.
func (m *Machine) Read(file string) map[string]any {
	m.t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(m.t, err)
	var content map[string]any
	require.NoError(m.t, json.Unmarshal(data, &content))
	return content
}
