package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFailuresExplainThemselves: of a failed test its own lines come last, with
// its seed and the command that repeats it.
func TestFailuresExplainThemselves(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := newLog(&out, command("go test -race -short -shuffle=on -skip ^TestLong$ -timeout 20m ./...", "all"))
	require.NoError(t, l.read(strings.NewReader(`go: downloading something
{"Action":"output","Package":"x/p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"x/p","Test":"TestA/one_(b)","Output":"    a_test.go:7: SANDBOX_TEST_SEED=42\n"}
{"Action":"output","Package":"x/p","Test":"TestA/one_(b)","Output":"    a_test.go:9: it differs\n"}
{"Action":"output","Package":"x/p","Test":"TestA/one_(b)","Output":"    --- FAIL: TestA/one_(b) (0.10s)\n"}
{"Action":"fail","Package":"x/p","Test":"TestA/one_(b)","Elapsed":0.1}
{"Action":"output","Package":"x/p","Test":"TestA","Output":"--- FAIL: TestA (0.10s)\n"}
{"Action":"fail","Package":"x/p","Test":"TestA","Elapsed":0.1}
{"Action":"output","Package":"x/p","Test":"TestB","Output":"    b_test.go:3: needs a printer\n"}
{"Action":"skip","Package":"x/p","Test":"TestB"}
{"Action":"output","Package":"x/p","Test":"TestD/root","Output":"    d_test.go:3: not root\n"}
{"Action":"skip","Package":"x/p","Test":"TestD/root"}
{"Action":"pass","Package":"x/q","Test":"TestC","Elapsed":3}
{"Action":"pass","Package":"x/q","Elapsed":3}
{"Action":"fail","Package":"x/p","Elapsed":0.2}
{"Action":"output","Package":"x/r","Output":"-test.shuffle 1234\n"}
{"Action":"output","Package":"x/r","Output":"goleak: found unexpected goroutines\n"}
{"Action":"fail","Package":"x/r","Elapsed":0.2}
{"Action":"pass","Package":"x/s","Test":"TestE"}
{"Action":"output","Package":"x/s","Test":"TestF/one","Output":"=== CONT  TestF/one\n"}
{"Action":"output","Package":"x/s","Test":"TestF/one","Output":"panic: test timed out\n"}
{"Action":"output","Package":"x/s","Output":"FAIL x/s\n"}
{"Action":"fail","Package":"x/s","Elapsed":0.2}
`)))
	l.summary()
	assert.Contains(t, out.String(), "go: downloading something\n")
	assert.Equal(t, "skip x/p TestB needs a printer\nskip x/p TestD/root not root\npass x/q TestC\npass x/s TestE\n", l.outcomes.String())
	assert.Contains(t, out.String(), "     1 × needs a printer\n     1 × not root\n2 passed, 4 failed, 2 skipped\n")
	assert.Equal(t, `
x/p TestA/one_(b)
    a_test.go:7: SANDBOX_TEST_SEED=42
    a_test.go:9: it differs
    --- FAIL: TestA/one_(b) (0.10s)
again: SANDBOX_TEST_SEED=42 SANDBOX_TEST_NEEDS=all go test -race -short -shuffle=on -count=1 -run '^TestA$/^one_\(b\)$' x/p

x/r
-test.shuffle 1234
goleak: found unexpected goroutines
again: SANDBOX_TEST_NEEDS=all go test -race -short -shuffle=1234 -count=1 x/r

x/s
FAIL x/s
not ended: TestF/one
panic: test timed out
again: SANDBOX_TEST_NEEDS=all go test -race -short -shuffle=on -count=1 x/s
`, l.failures())
}

// TestUnverified: what one run has skipped and another has not is verified.
func TestUnverified(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "     2 × needs a printer (x/p TestB)\n", unverified(`skip x/p TestB needs a printer
skip x/p TestC/root not root
pass x/p TestA
skip x/q TestB needs a printer
pass x/p TestC/root
`))
}

// TestFloors: a package of which fewer tests pass than on that machine before is
// named, also one that is gone.
func TestFloors(t *testing.T) {
	t.Parallel()
	l := newLog(&bytes.Buffer{}, "")
	require.NoError(t, l.read(strings.NewReader(`{"Action":"pass","Package":"x/p","Test":"TestA"}
{"Action":"pass","Package":"x/p","Test":"TestB"}
`)))
	const floors = "# a comment of words\nuser x/p 2\nuser x/q 1\nroot x/p 3\n"
	assert.Equal(t, "\nx/q\n0 tests passed, and there were 1\n", l.below(floors, "user"))
	assert.Equal(t, "\nx/p\n2 tests passed, and there were 3\n", l.below(floors, "root"))
	assert.Empty(t, l.below(floors, "other"))
}
