package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Time is a time that is encoded as milliseconds since the Unix epoch. The zero
// Time means absent: fields of this type are tagged omitzero.
type Time struct{ time.Time }

// At wraps t.
func At(t time.Time) Time { return Time{t} }

// MarshalJSON encodes whole milliseconds.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, t.UnixMilli(), 10), nil
}

// UnmarshalJSON decodes milliseconds, with or without a fraction. The result is
// in UTC. A time out of range is treated as absent, so that one odd field does
// not make a whole response fail.
func (t *Time) UnmarshalJSON(data []byte) error {
	ns, whole, null, err := parseMillis(data)
	switch {
	case err != nil:
		return err
	case null:
		t.Time = time.Time{}
	default:
		if t.Time = atMilli(whole); !t.IsZero() {
			t.Time = t.Add(ns)
		}
	}
	return nil
}

// atMilli returns the time that is so many milliseconds after the Unix epoch, or
// the zero Time if it is out of the range that a time.Time can be encoded in.
func atMilli(ms int64) time.Time {
	const year0, year9999 = -62167219200000, 253402300799999
	if ms < year0 || ms > year9999 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Duration is a duration that is encoded as milliseconds.
type Duration time.Duration

// MarshalJSON encodes milliseconds, with a fraction only if necessary.
func (d Duration) MarshalJSON() ([]byte, error) {
	ms := time.Duration(d) / time.Millisecond
	if rest := time.Duration(d) % time.Millisecond; rest != 0 {
		return strconv.AppendFloat(nil, float64(ms)+float64(rest)/1e6, 'f', -1, 64), nil
	}
	return strconv.AppendInt(nil, int64(ms), 10), nil
}

// UnmarshalJSON decodes milliseconds, with or without a fraction. A duration
// out of range becomes the longest one.
func (d *Duration) UnmarshalJSON(data []byte) error {
	ns, whole, null, err := parseMillis(data)
	switch {
	case err != nil:
		return err
	case null:
		*d = 0
	case whole > math.MaxInt64/int64(time.Millisecond)-1:
		*d = math.MaxInt64
	case whole < math.MinInt64/int64(time.Millisecond)+1:
		*d = math.MinInt64
	default:
		*d = Duration(time.Duration(whole)*time.Millisecond + ns)
	}
	return nil
}

// DurationPtr converts an optional public duration for a request.
func DurationPtr(d *time.Duration) *Duration {
	if d == nil {
		return nil
	}
	return new(Duration(*d))
}

// Std converts an optional duration of a response.
func (d *Duration) Std() *time.Duration {
	if d == nil {
		return nil
	}
	return new(time.Duration(*d))
}

// parseMillis splits a JSON number of milliseconds into whole ones and the
// remaining nanoseconds.
func parseMillis(data []byte) (rest time.Duration, whole int64, null bool, err error) {
	if bytes.Equal(data, []byte("null")) {
		return 0, 0, true, nil
	}
	if whole, err = strconv.ParseInt(string(data), 10, 64); err == nil {
		return 0, whole, false, nil
	}
	f, err := strconv.ParseFloat(string(data), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // f is infinite then
		return 0, 0, false, fmt.Errorf("wire: %.40q is not a number of milliseconds", data)
	}
	switch i, frac := math.Modf(f); {
	case i >= math.MaxInt64:
		return 0, math.MaxInt64, false, nil
	case i <= math.MinInt64:
		return 0, math.MinInt64, false, nil
	default:
		return time.Duration(math.Round(frac * 1e6)), int64(i), false, nil
	}
}
