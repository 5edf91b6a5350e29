package needs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// recorder records what a test would have done.
type recorder struct {
	testing.TB
	skipped, failed bool
}

func (r *recorder) Helper()              {}
func (r *recorder) Skipf(string, ...any) { r.skipped = true }
func (r *recorder) Fatalf(string, ...any) {
	r.failed = true
}

func TestPrograms(t *testing.T) {
	r := &recorder{TB: t}
	needs.Programs(r, "go")
	assert.Equal(t, [2]bool{false, false}, [2]bool{r.skipped, r.failed})
	needs.Programs(r, "no-such-program")
	assert.Equal(t, [2]bool{true, false}, [2]bool{r.skipped, r.failed})
}
