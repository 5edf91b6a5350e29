package units

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90": 90 * time.Millisecond, "90ms": 90 * time.Millisecond, "5m": 5 * time.Minute, "5 minutes": 5 * time.Minute,
		"1 hour": time.Hour, "30s": 30 * time.Second, "2days": 48 * time.Hour, "10 msecs": 10 * time.Millisecond,
		"5min": 5 * time.Minute, "1.5h": 90 * time.Minute, "1h30m": 90 * time.Minute, "1h 30m": 90 * time.Minute, "1w": 168 * time.Hour, "0": 0,
	} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "m", "5x", "-5m", "5m garbage", "99999999999999999999", "99999999999w", "1..5h"} {
		_, err := ParseDuration(text)
		assert.Error(t, err, text)
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "0 seconds ago", -time.Second: "1 second ago", -59 * time.Second: "59 seconds ago", -90 * time.Second: "2 minutes ago",
		7 * day: "in 7 days", 24*time.Hour - time.Second: "in 24 hours", 5*time.Minute - 20*time.Second: "in 5 minutes",
		-45 * day: "2 months ago", -362 * day: "1 year ago", 800 * day: "in 2 years", 1500 * time.Millisecond: "in 2 seconds",
	} {
		assert.Equal(t, want, Distance(now.Add(d), now), d)
	}
	assert.Equal(t, "-", Distance(time.Time{}, now))
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 B", 105: "105 B", 1023: "1,023 B", 1536: "1.5 KiB", 10 * 1024: "10 KiB", 1 << 20: "1 MiB", 5 << 40: "5 TiB", 2048 << 40: "2,048 TiB",
	} {
		assert.Equal(t, want, Bytes(n))
	}
	assert.Equal(t, "4,096 MB", Megabytes(4096))
	for text, want := range map[string]int64{"1000": 1000, "200GiB": 200 << 30, "1.5 MB": 3 << 19, "1k": 1024, "7b": 7, "0.3": 0, "1.0005k": 1025} {
		got, err := ParseBytes(text)
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "x", "-1", "1 zib", "1e3", "GiB", "1GiB x", "99999999999TiB"} {
		_, err := ParseBytes(text)
		assert.Error(t, err, text)
	}
}

func TestRunAndLong(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "15ms", Run(15*time.Millisecond))
	assert.Equal(t, "227.335s", Run(227335*time.Millisecond))
	assert.Equal(t, "258.5s", Run(258500*time.Millisecond))
	assert.Equal(t, "30 minutes", Long(30*time.Minute))
	assert.Equal(t, "1 hour", Long(time.Hour))
	assert.Equal(t, "7 days", Long(7*day))
	assert.Equal(t, "1 minute", Long(89*time.Second))
	assert.Equal(t, "5 ms", Long(5*time.Millisecond))
}
