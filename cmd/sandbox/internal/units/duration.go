// Package units reads and writes durations, times and sizes the way the command
// line does.
package units

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

var (
	part     = `(\d+(?:\.\d+)?) ?(milliseconds?|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)`
	whole    = regexp.MustCompile(`^(?:` + part + ` ?)+$`)
	pieces   = regexp.MustCompile(part)
	noUnit   = regexp.MustCompile(`^\d+$`)
	unitSize = map[string]time.Duration{
		"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": day, "w": week,
	}
)

// durationError reports a text that is not a duration.
type durationError struct{ Text string }

func (e *durationError) Error() string {
	return fmt.Sprintf("malformed duration %q; use a number with a unit: 90s, 5m, 1.5h, 1h30m, 7d", e.Text)
}

// ParseDuration reads a duration such as "90s", "5 minutes", "1.5h", "1h30m" or
// "7d". A bare number is milliseconds.
func ParseDuration(text string) (time.Duration, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	if noUnit.MatchString(s) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n > math.MaxInt64/int64(time.Millisecond) {
			return 0, &durationError{text}
		}
		return time.Duration(n) * time.Millisecond, nil
	}
	if !whole.MatchString(s) {
		return 0, &durationError{text}
	}
	var total float64
	for _, p := range pieces.FindAllStringSubmatch(s, -1) {
		n, err := strconv.ParseFloat(p[1], 64)
		if err != nil {
			return 0, &durationError{text}
		}
		total += n * float64(unitSize[unitOf(p[2])])
	}
	if total >= math.MaxInt64 {
		return 0, &durationError{text}
	}
	return time.Duration(math.Round(total)), nil
}

// BareNumber reports whether a duration has no unit and is so short that seconds were
// probably meant.
func BareNumber(text string, d time.Duration) bool {
	return noUnit.MatchString(strings.TrimSpace(text)) && d > 0 && d < time.Second
}

func unitOf(name string) string {
	switch {
	case strings.HasPrefix(name, "ms"), strings.HasPrefix(name, "milli"):
		return "ms"
	default:
		return name[:1]
	}
}

// Long formats a duration as one rounded number with its unit in full, as in "5 minutes".
func Long(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{day, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if d >= u.size {
			n := math.Round(float64(d) / float64(u.size))
			if float64(d) >= 1.5*float64(u.size) {
				return fmt.Sprintf("%.0f %ss", n, u.name)
			}
			return fmt.Sprintf("%.0f %s", n, u.name)
		}
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// Run formats how long something ran: "15ms", "227.335s".
func Run(d time.Duration) string {
	if ms := d.Milliseconds(); ms < 1000 {
		return fmt.Sprintf("%dms", ms)
	}
	return strconv.FormatFloat(float64(d.Milliseconds())/1000, 'f', -1, 64) + "s"
}

// Distance formats the time between now and t: "2 minutes ago", "in 7 days". The zero
// time is "-".
func Distance(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := t.Sub(now)
	text := strictDistance(d.Abs())
	if d > 0 {
		return "in " + text
	}
	return text + " ago"
}

func strictDistance(d time.Duration) string {
	const month, year = 30 * day, 365 * day
	d = d.Truncate(time.Millisecond)
	round := func(unit time.Duration) int { return int(math.Floor(float64(d)/float64(unit) + 0.5)) }
	count := func(n int, unit string) string {
		if n == 1 {
			return "1 " + unit
		}
		return fmt.Sprintf("%d %ss", n, unit)
	}
	switch {
	case d < time.Minute:
		return count(round(time.Second), "second")
	case d < time.Hour:
		return count(round(time.Minute), "minute")
	case d < day:
		return count(round(time.Hour), "hour")
	case d < month:
		return count(round(day), "day")
	case d < year:
		if n := round(month); n < 12 {
			return count(n, "month")
		}
		return "1 year"
	default:
		return count(round(year), "year")
	}
}
