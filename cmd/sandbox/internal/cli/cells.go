package cli

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
)

// The following functions format the cells of tables. A dash stands for an unknown value.

func orDash(s string) string {
	return cmp.Or(s, "-")
}

func numberOrDash(n int, text func(int) string) string {
	if n == 0 {
		return "-"
	}
	return text(n)
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
	return strings.Join(mapped(slices.Sorted(maps.Keys(tags)), func(k string) string { return k + between + tags[k] }), ", ")
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
