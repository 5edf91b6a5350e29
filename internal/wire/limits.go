package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits that the service sets for every plan. The client, the emulator and the
// command line check them. Lengths are in characters. Limits that depend on the plan, such
// as the longest timeout, are checked by the service and its emulator alone.
const (
	MaxName      = 128
	MaxDriveName = 64
	MaxCommandID = 64

	MaxTags     = 5
	MaxTagKey   = 128
	MaxTagValue = 256
	MaxEnv      = 4096 // bytes of a sandbox's environment as JSON

	MinPort, MaxPort = 1024, 65535
	MaxPorts         = 15
	ReservedPort     = 23456
	MaxMounts        = 4

	MaxVCPUs      = 32   // of any plan; 1 or an even number
	MemoryPerVCPU = 2048 // MB
	MaxDriveSize  = 16 << 40

	MinTimeout        = time.Second
	MaxTimeout        = 24 * time.Hour
	MinCommandTimeout = 100 * time.Millisecond
	MaxCommandTimeout = 5 * time.Hour

	MinExpiration    = 24 * time.Hour // of snapshots
	MaxKeptSnapshots = 10

	MaxPage     = 50 // items of a listing
	MaxTreePage = 10 // of the tree of snapshots

	MaxStdin = 1 << 20 // bytes of the body of a write to a command
	MaxCells = 65535   // columns and rows of a terminal
)

// ReservedNames can't be names of sandboxes, because they are parts of other routes.
var ReservedNames = []string{"sessions", "snapshots", "drives", "features"}

// PlainName reports whether s consists of letters, digits, underscores and dashes, and is
// not longer than most.
func PlainName(s string, most int) bool {
	return s != "" && len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_')
	})
}

// Regions are the regions of the service.
var Regions = []string{
	"iad1", "sfo1", "cle1", "cdg1", "fra1", "arn1", "sin1", "pdx1", "lhr1", "icn1", "bom1", "cpt1", "dub1", "gru1", "hkg1",
	"syd1", "yul1", "hnd1", "kix1",
}

// VCPUs reports whether a machine can have n virtual CPUs.
func VCPUs(n int) bool { return n == 1 || n > 0 && n%2 == 0 }

// SandboxName reports whether name can be the name of a sandbox.
func SandboxName(s string) bool { return PlainName(s, MaxName) && !slices.Contains(ReservedNames, s) }

// CheckText refuses strings that can't be sent in JSON or in a process's arguments.
func CheckText(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("is not valid UTF-8")
	}
	if strings.IndexByte(s, 0) >= 0 {
		return errors.New("contains a NUL byte")
	}
	return nil
}

// CheckEnv refuses variables that no process can have. The message never contains a value.
func CheckEnv(env map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") || !utf8.ValidString(k) {
			return fmt.Errorf("%q can't be the name of a variable", k)
		}
		if err := CheckText(env[k]); err != nil {
			return fmt.Errorf("the value of %s %w", k, err)
		}
	}
	return nil
}
