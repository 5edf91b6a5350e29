package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFaults: lint reports exactly the marked lines of testdata/faults.
func TestFaults(t *testing.T) {
	lint := filepath.Join(t.TempDir(), "lint")
	if out, err := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", lint, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := filepath.Join("testdata", "faults")
	out, _ := exec.Command("go", "vet", "-vettool="+lint, "./"+dir).CombinedOutput()
	for _, name := range []string{"faults.go", "faults_test.go"} {
		source := filepath.Join(dir, name)
		found := map[string]string{}
		for message := range strings.Lines(string(out)) {
			place, said, _ := strings.Cut(strings.TrimPrefix(message, "vet: "), ": ")
			// With -trimpath, the path may belong to another clone.
			if _, at, ok := strings.Cut(place, source+":"); ok {
				line, _, _ := strings.Cut(at, ":")
				found[line] += said
			}
		}
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			_, want, marked := strings.Cut(strings.TrimSpace(line), "// want: ")
			if got := found[fmt.Sprint(n)]; marked != (got != "") || !strings.Contains(got, want) {
				t.Errorf("%s:%d: %q, want %q", source, n, got, want)
			}
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
