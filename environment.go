package sandbox

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
)

// Env holds environment variables. A map literal can be assigned to it. Its
// values are never printed, logged or marshaled, only the names.
type Env map[string]string

// String returns the names.
func (e Env) String() string {
	return "[" + strings.Join(slices.Sorted(maps.Keys(e)), " ") + "]"
}

// Format writes String for every verb.
func (e Env) Format(f fmt.State, verb rune) { redact.String(f, verb, e.String()) }

// LogValue implements [slog.LogValuer].
func (e Env) LogValue() slog.Value { return slog.StringValue(e.String()) }

// MarshalJSON encodes the names with redacted values.
func (e Env) MarshalJSON() ([]byte, error) {
	shown := make(map[string]string, len(e))
	for k := range e {
		shown[k] = redact.Mark
	}
	return json.Marshal(shown)
}

// DefaultRegion is where the platform creates sandboxes and drives by default.
const DefaultRegion = "iad1"

// Regions known to this version, for [CreateOptions.Region] and wherever else a
// region is asked for. Any other string is sent as it is: which regions a
// project may use depends on its plan.
const (
	RegionARN1 = "arn1" // Stockholm
	RegionBOM1 = "bom1" // Mumbai
	RegionCDG1 = "cdg1" // Paris
	RegionCLE1 = "cle1" // Cleveland
	RegionCPT1 = "cpt1" // Cape Town
	RegionDUB1 = "dub1" // Dublin
	RegionFRA1 = "fra1" // Frankfurt
	RegionGRU1 = "gru1" // São Paulo
	RegionHKG1 = "hkg1" // Hong Kong
	RegionHND1 = "hnd1" // Tokyo
	RegionIAD1 = "iad1" // Washington, D.C.
	RegionICN1 = "icn1" // Seoul
	RegionKIX1 = "kix1" // Osaka
	RegionLHR1 = "lhr1" // London
	RegionPDX1 = "pdx1" // Portland
	RegionSFO1 = "sfo1" // San Francisco
	RegionSIN1 = "sin1" // Singapore
	RegionSYD1 = "syd1" // Sydney
	RegionYUL1 = "yul1" // Montréal
)

// The images that the platform maintains, for [CreateOptions.Image]. Without an
// image and a runtime, a sandbox uses ImageUniversal. In all of them the user
// is ubuntu, with sudo, and the working directory is /vercel. Other images are
// named by their reference in the project's registry.
const (
	ImageUniversal = "vercel/sandbox/universal"
	ImageNode26    = "vercel/sandbox/node:26"
	ImageNode24    = "vercel/sandbox/node:24"
	ImageNode22    = "vercel/sandbox/node:22"
	ImagePython314 = "vercel/sandbox/python:3.14"
	ImageUbuntu    = "vercel/sandbox/ubuntu"
	ImageArch      = "vercel/sandbox/arch"
)

// The runtimes, for [CreateOptions.Runtime]: the predecessors of the images,
// based on Amazon Linux, with half the disk, the user vercel-sandbox and the
// working directory /vercel/sandbox. The platform has deprecated them.
const (
	RuntimeNode26    = "node26"
	RuntimeNode24    = "node24"
	RuntimeNode22    = "node22"
	RuntimePython313 = "python3.13"
)
