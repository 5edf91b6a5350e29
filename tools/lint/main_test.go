package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every marked line of testdata/faults is found, for what is said there, and no
// other.
func TestFaults(t *testing.T) {
	lint := filepath.Join(t.TempDir(), "lint")
	if out, err := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", lint, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	source := filepath.Join("testdata", "faults", "faults.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	out, _ := exec.Command("go", "vet", "-vettool="+lint, "./"+filepath.Dir(source)).CombinedOutput()
	for message := range strings.Lines(string(out)) {
		place, said, _ := strings.Cut(strings.TrimPrefix(message, "vet: "), ": ")
		// With -trimpath it may be what was found in another clone.
		if _, at, ok := strings.Cut(place, source+":"); ok {
			line, _, _ := strings.Cut(at, ":")
			found[line] += said
		}
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		_, want, marked := strings.Cut(strings.TrimSpace(line), "// want: ")
		if got := found[fmt.Sprint(n)]; marked != (got != "") || !strings.Contains(got, want) {
			t.Errorf("%s:%d: %q, want %q", source, n, got, want)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
