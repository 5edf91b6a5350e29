package main

import (
	"cmp"
	"fmt"
	"strings"
)

// Change is a change to a row of docs/maintainers/platform.md that a report suggests.
type Change struct {
	// Row is the beginning of the row, or the question if there is no row.
	Row string
	// Differs is set if the service answers differently. Otherwise the row can be marked
	// as observed.
	Differs bool
	// Text is the actual answer if Differs is set. Otherwise it says which mark to change.
	Text string
}

// Changes returns the changes to rows, in the order of the questions. A row that was
// observed before, with the same answer, needs no change.
func (r *Report) Changes() []Change {
	var order []string
	rows := map[string][]Answer{}
	for _, a := range r.Answers {
		row := cmp.Or(a.Row, a.Asked)
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
