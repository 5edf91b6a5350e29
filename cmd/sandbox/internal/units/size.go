package units

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

var sizeText = regexp.MustCompile(`^(\d+(?:\.\d+)?) ?([kmgt]i?b?|b)?$`)

// ParseBytes reads a size: a number of bytes, or one with a unit such as
// "200GiB" or "1.5 MB", rounded to bytes. Units are powers of 1024, as in the
// official CLI.
func ParseBytes(text string) (int64, error) {
	m := sizeText.FindStringSubmatch(strings.ToLower(strings.TrimSpace(text)))
	if m == nil {
		return 0, fmt.Errorf("%q is not a size; use bytes or a unit: 1048576, 200GiB, 1.5MiB", text)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, err
	}
	if m[2] != "" {
		n *= math.Pow(1024, float64(strings.Index("bkmgt", m[2][:1])))
	}
	if n >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return int64(math.Round(n)), nil
}

// Bytes writes a size with a binary unit: "105 B", "1.5 KiB".
func Bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	if value < 10 && unit > 0 {
		return strconv.FormatFloat(math.Round(value*10)/10, 'f', -1, 64) + " " + units[unit]
	}
	return Grouped(int64(math.Round(value))) + " " + units[unit]
}

// Grouped writes a number with commas between its thousands.
func Grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Megabytes writes an amount of memory: "4,096 MB".
func Megabytes(n int) string { return Grouped(int64(n)) + " MB" }
