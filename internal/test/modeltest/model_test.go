package modeltest

import (
	"github.com/go-vercel/sandbox/internal/test/needs"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These environment variables control a run of TestModel.
const (
	timeEnv = "SANDBOX_MODEL_TIME" // how long to run programs of new seeds, such as "1h"
	seedEnv = "SANDBOX_MODEL_SEED" // the first seed; without a time, the only one
)

const (
	programLength = 12
	// shrinkTime is the time limit for shrinking a program.
	shrinkTime = 3 * time.Minute
)

// TestModel runs programs of successive seeds: one program by default, for a minute with
// SANDBOX_SLOW=1, or for the duration in SANDBOX_MODEL_TIME.
func TestModel(t *testing.T) {
	needs.GNU(t)
	begin := time.Now()
	first, count, until := uint64(1), 1, begin
	if needs.Slow() {
		until = begin.Add(time.Minute)
	}
	if timed := os.Getenv(timeEnv); timed != "" {
		d, err := time.ParseDuration(timed)
		require.NoError(t, err)
		first, until = uint64(begin.Unix()), begin.Add(d)
	}
	if seed := os.Getenv(seedEnv); seed != "" {
		n, err := strconv.ParseUint(seed, 10, 64)
		require.NoError(t, err)
		first = n
		if os.Getenv(timeEnv) == "" {
			count, until = 1, begin
		}
	}
	played, steps := 0, 0
	for seed := first; played < count || time.Now().Before(until); seed++ {
		program := Program(seed, programLength)
		if at, err := play(t.Context(), program); err != nil {
			shrinkUntil := time.Now().Add(shrinkTime)
			fails := func(s []Step) bool {
				if time.Now().After(shrinkUntil) {
					return false
				}
				_, err := play(t.Context(), s)
				return err != nil
			}
			// The steps after the failed one don't matter.
			shrunk := Shrink(program[:max(at, 1)], fails)
			t.Fatalf("SANDBOX_MODEL_SEED=%d, after %d steps: %v\nthe steps that are needed for the failure:\n%s", seed, steps+at, err, Describe(shrunk))
		}
		played, steps = played+1, steps+len(program)
	}
	t.Logf("%d programs of %d steps passed, from seed %d on", played, steps, first)
}

// TestShrink: Shrink returns only the steps that a program needs to fail.
func TestShrink(t *testing.T) {
	t.Parallel()
	program := Program(7, 30)
	want := program[11]
	shrunk := Shrink(program, func(s []Step) bool {
		return slices.ContainsFunc(s, func(s Step) bool { return s.Kind == want.Kind && s.Fault.What == want.Fault.What })
	})
	require.Len(t, shrunk, 1)
	assert.Equal(t, want.Kind, shrunk[0].Kind)
	assert.Equal(t, 1, shrunk[0].Size, "the failure does not depend on the size")
	assert.Equal(t, program, Program(7, 30), "a seed determines a program")
}

// TestProgramsCoverAllPairs: the programs that run in a minute contain every kind of step with each
// of its likely faults.
func TestProgramsCoverAllPairs(t *testing.T) {
	t.Parallel()
	kinds, whats := map[Kind]int{}, map[What]int{}
	for seed := range uint64(40) {
		for _, s := range Program(seed, programLength) {
			kinds[s.Kind]++
			whats[s.Fault.What]++
		}
	}
	for _, kind := range slices.Concat(commands, files, lives) {
		assert.Positive(t, kinds[kind], kind)
	}
	var dealt []pair
	for n := range uint64(len(pairs)) {
		dealt = append(dealt, nthPair(n))
	}
	assert.ElementsMatch(t, pairs, dealt, "each pair occurs once")
	for _, what := range slices.Concat([]What{None, Clean, Late, Held, Double, Crossed, Cleaned, Rival}, generalFaults, sandboxFaults) {
		assert.Positive(t, whats[what], what)
	}
}
