package modeltest

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Environment variables of the run.
const (
	timeEnv = "SANDBOX_MODEL_TIME" // how long to go on with new seeds, as "1h"
	seedEnv = "SANDBOX_MODEL_SEED" // the seed of the one program to play
)

const programLength = 8

// TestModel plays programs of one seed after the other: a few with -short, for
// half a minute without, or for as long as SANDBOX_MODEL_TIME says.
func TestModel(t *testing.T) {
	first, count, until := uint64(1), 2, time.Now()
	switch seed, timed := os.Getenv(seedEnv), os.Getenv(timeEnv); {
	case seed != "":
		n, err := strconv.ParseUint(seed, 10, 64)
		require.NoError(t, err)
		first, count = n, 1
	case timed != "":
		d, err := time.ParseDuration(timed)
		require.NoError(t, err)
		first, until = uint64(until.Unix()), until.Add(d)
	case !testing.Short():
		until = until.Add(30 * time.Second)
	}
	played, steps := 0, 0
	for seed := first; played < count || time.Now().Before(until); seed++ {
		program := Program(seed, programLength)
		if err := play(t.Context(), program); err != nil {
			fails := func(s []Step) bool { return play(t.Context(), s) != nil }
			t.Fatalf("seed %d: %v\nthe steps that it takes:\n%s", seed, err, Describe(Shrink(program, fails)))
		}
		played, steps = played+1, steps+len(program)
	}
	t.Logf("%d programs of %d steps held, from seed %d on", played, steps, first)
}

// TestShrink: what a program fails without is left out of it.
func TestShrink(t *testing.T) {
	t.Parallel()
	program := Program(7, 30)
	want := program[11]
	shrunk := Shrink(program, func(s []Step) bool {
		return slices.Contains(s, want)
	})
	assert.Equal(t, []Step{want}, shrunk)
	assert.Equal(t, program, Program(7, 30), "a seed gives one program")
}
