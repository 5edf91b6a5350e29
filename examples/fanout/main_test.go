package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestExample runs the program on the emulator, with the service's rate limits and
// a machine that is lost.
func TestExample(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "fanout")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	refused := 0
	srv := sandboxtest.New(t, &sandboxtest.Options{RateLimits: true})
	cmd := exec.CommandContext(t.Context(), bin, "-shards", "20", "-parallel", "20", "-lose", "7")
	cmd.Env = append(os.Environ(), srv.Environ()...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	for _, want := range []string{"20 shards, 20 at a time, machines lost: 1,", "the sum is 2001000"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("got %q, want %q", out, want)
		}
	}
	creates := 0
	for _, r := range srv.Requests() {
		if r.Operation == sandboxtest.CreateSandbox {
			creates++
			if r.Status == 429 {
				refused++
			}
		}
	}
	if creates-refused != 22 || refused > 1 {
		t.Errorf("%d sandboxes were created, and %d creations refused", creates-refused, refused)
	}
	left, err := srv.Client().ListPage(t.Context(), nil)
	if err != nil || len(left.Items) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}
