package conformance

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// These environment variables control a run of the tests.
const (
	dirEnv    = "SANDBOX_CONFORMANCE_DIR"    // another folder with scenarios/ and expected/
	reportEnv = "SANDBOX_CONFORMANCE_REPORT" // a file to write the outcomes to, as JSON
	recordEnv = "SANDBOX_CONFORMANCE_RECORD" // the names of the departures to record again, or "all"
)

const dataDir = "../../../testdata/conformance"

// TestPlayer plays scenarios in a process of its own.
func TestPlayer(t *testing.T) { PlayerMain(t) }

func suite(t *testing.T, dir string) *Suite {
	t.Helper()
	departures := LoadDepartures(dataDir)
	dir, err := filepath.Abs(dir)
	require.NoError(t, err)
	return &Suite{Dir: dir, Departures: departures}
}

// TestConformance plays each scenario with this SDK, and compares the requests and results
// with the recording of the official SDK.
func TestConformance(t *testing.T) { play(t, dataDir, os.Getenv(reportEnv)) }

// TestMoreConformance is like TestConformance, but for the scenarios that this project has added.
func TestMoreConformance(t *testing.T) {
	needs.GNU(t)
	if os.Getenv(dirEnv) != "" {
		needs.Other(t, "the test plays another folder")
	}
	play(t, filepath.Join(dataDir, "more"), "")
}

func play(t *testing.T, dir, report string) {
	s := suite(t, cmp.Or(os.Getenv(dirEnv), dir))
	s.Players = &Players{}
	defer s.Players.Close()
	names := os.Getenv(recordEnv)
	for _, d := range s.Departures.Scenarios {
		_, err := os.Stat(filepath.Join(s.Dir, "scenarios", d.Name+".json"))
		if err == nil && (names == "all" || strings.Contains(","+names+",", ","+d.Name+",")) {
			t.Logf("%s differs from the official SDK's recording in\n\t%s", d.Name, strings.Join(s.Record(t.Context(), d.Name), "\n\t"))
		}
	}
	if runtime.GOOS == "windows" {
		needs.Other(t, "the recordings have the paths and file modes of Unix")
	}
	files := s.Files()
	require.NotEmpty(t, files)

	outcomes := make([]Outcome, len(files))
	t.Run("scenarios", func(t *testing.T) {
		for i, file := range files {
			t.Run(strings.TrimSuffix(file, ".json"), func(t *testing.T) {
				t.Parallel()
				o := s.Run(t.Context(), file)
				outcomes[i] = o
				switch o.Outcome {
				case Failed:
					t.Error(o.Difference)
				case Skipped:
					needs.Other(t, "%v", o.Difference)
				case Departed:
					t.Log("departs: " + o.Difference)
				}
			})
		}
	})
	counts := map[string]int{}
	var played []Outcome
	for _, o := range outcomes {
		if o.Name != "" { // empty for scenarios that the -run pattern excludes
			played = append(played, o)
			counts[o.Outcome]++
		}
	}
	t.Logf("%d passed, %d departed, %d skipped, %d failed", counts[Passed], counts[Departed], counts[Skipped], counts[Failed])
	if report != "" {
		data, err := json.MarshalIndent(played, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(report, append(data, '\n'), 0o644))
	}
}
