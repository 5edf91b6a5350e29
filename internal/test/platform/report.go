package main

import (
	"fmt"
	"strings"
)

// Change is what a report says about a row of docs/maintainers/platform.md.
type Change struct {
	// Row is the start of the row, or the question if there is none.
	Row string
	// Differs is set if the service answers differently. Otherwise the row is observed from
	// now on.
	Differs bool
	// Text says which mark to change, or the actual answer.
	Text string
}

// Changes are the rows whose marks the answers change, in the order of the
// questions. What was observed before and still is needs no change.
func (r *Report) Changes() []Change {
	var order []string
	rows := map[string][]Answer{}
	for _, a := range r.Answers {
		row := a.Row
		if row == "" {
			row = a.Asked
		}
		if rows[row] == nil {
			order = append(order, row)
		}
		rows[row] = append(rows[row], a)
	}
	var out []Change
	for _, row := range order {
		var differ, confirmed []string
		for _, a := range rows[row] {
			switch {
			case !a.Agrees():
				differ = append(differ, fmt.Sprintf("%s: %q, not %q as %s", a.Asked, a.Came, a.Expected, a.Known))
			case !a.Observed():
				confirmed = append(confirmed, fmt.Sprintf("%s (%s)", a.Asked, a.Known))
			}
		}
		switch {
		case differ != nil:
			out = append(out, Change{row, true, "correct it: " + strings.Join(differ, "; ")})
		case confirmed != nil && rows[row][0].Row != "":
			out = append(out, Change{row, false, "mark as observed: " + strings.Join(confirmed, "; ")})
		}
	}
	return out
}
