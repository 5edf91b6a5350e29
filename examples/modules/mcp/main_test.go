package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestExample runs the program on the emulator.
func TestExample(t *testing.T) {
	needs.Programs(t, "python3") // the emulator's sandboxes have the programs of this machine
	bin := filepath.Join(t.TempDir(), "mcp")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	srv := sandboxtest.New(t, nil)
	cmd := exec.CommandContext(t.Context(), bin, "x = 6 * 7", "print(x)", "1 / 0")
	c := srv.Credentials()
	cmd.Env = append(os.Environ(), "VERCEL_SANDBOX_BASE_URL="+srv.URL, "VERCEL_TOKEN="+c.Token, "VERCEL_TEAM_ID="+c.TeamID, "VERCEL_PROJECT_ID="+c.ProjectID)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	want := []string{
		"tool python: Run Python. Variables stay from call to call.",
		">>> x = 6 * 7", `""`, ">>> print(x)", `"42\n"`, ">>> 1 / 0", `"ZeroDivisionError('division by zero')"`, "",
	}
	if got := string(out); got != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", got)
	}
}
