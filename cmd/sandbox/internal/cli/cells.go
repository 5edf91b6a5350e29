package cli

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
)

// The following functions format the cells of tables. A dash stands for an unknown value.

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func numberOrDash(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func memoryOrDash(mb int) string {
	if mb == 0 {
		return "-"
	}
	return units.Megabytes(mb)
}

func relativeTime(t *time.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	return units.Distance(*t, now)
}

// imageOrRuntime returns the image with a shortened digest, or the runtime if no image is
// known.
func imageOrRuntime(image, runtime string) string {
	if image == "" {
		return orDash(runtime)
	}
	if name, digest, ok := strings.Cut(image, "@sha256:"); ok && len(digest) > 12 {
		return name + "@sha256:" + digest[:12] + "…"
	}
	return image
}

func tagsText(tags map[string]string, between string) string {
	if len(tags) == 0 {
		return "-"
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, k+between+tags[k])
	}
	return strings.Join(out, ", ")
}

func cpuText(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return units.Run(time.Duration(ms) * time.Millisecond)
}

func networkText(out, in int64) string {
	if out == 0 && in == 0 {
		return "- / -"
	}
	return units.Bytes(out) + " / " + units.Bytes(in)
}

// mapped applies f to each item.
func mapped[T, U any](items []T, f func(T) U) []U {
	out := make([]U, len(items))
	for i, it := range items {
		out[i] = f(it)
	}
	return out
}
