package conformance

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Recording contains the requests that a client has sent for a scenario, and the results of
// its calls. Both are decoded JSON.
type Recording struct {
	Requests []any `json:"requests"`
	Results  []any `json:"results"`
}

// Compare describes the first difference between two recordings. It returns "" if they are
// equal by the rules of the format. With anyOrder, it ignores the order of requests.
func Compare(want, got Recording, anyOrder bool) string {
	wanted, sent := compared(want.Requests, anyOrder), compared(got.Requests, anyOrder)
	requests, results := differs("requests", wanted, sent), differs("results", any(want.Results), any(got.Results))
	if requests != "" && results != "" { // a difference in results often explains one in requests
		return requests + "; and " + results
	}
	return requests + results
}

func compared(requests []any, anyOrder bool) any {
	out := []any{}
	for _, r := range requests {
		out = append(out, tolerant(r))
	}
	if anyOrder {
		slices.SortFunc(out, func(a, b any) int { return bytes.Compare(marshal(a), marshal(b)) })
	}
	return out
}

// tolerant returns a request without the parts that may differ between clients: the user
// agent, and the content type if there is no body.
func tolerant(request any) any {
	r := maps.Clone(request.(object))
	delete(r, "ua")
	if headers, ok := r["headers"].(object); ok && r["body"] == nil {
		headers = maps.Clone(headers)
		delete(headers, "content-type")
		r["headers"] = headers
	}
	return r
}

// differs compares decoded JSON values and describes the first difference. A wanted string
// that ends with an ellipsis matches every string that begins with the text before it.
// differs ignores the cause of an error.
func differs(at string, want, got any) string {
	switch w := want.(type) {
	case object:
		g, ok := got.(object)
		if !ok {
			break
		}
		keys := slices.Sorted(maps.Keys(w))
		for k := range g {
			if _, ok := w[k]; !ok {
				keys = append(keys, k)
			}
		}
		_, isError := w["kind"]
		for _, k := range keys {
			if isError && k == "cause" {
				continue
			}
			wv, inWant := w[k]
			gv, inGot := g[k]
			switch {
			case !inGot:
				return fmt.Sprintf("%s: %q is missing; want %s, got %s", at, k, show(want), show(got))
			case !inWant:
				return fmt.Sprintf("%s: %q was not expected; want %s, got %s", at, k, show(want), show(got))
			}
			if d := differs(at+"."+k, wv, gv); d != "" {
				return d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok {
			break
		}
		for i := range min(len(w), len(g)) {
			if d := differs(fmt.Sprintf("%s[%d]", at, i), w[i], g[i]); d != "" {
				return d
			}
		}
		if len(w) != len(g) {
			return fmt.Sprintf("%s: %d elements where %d were wanted; want %s, got %s", at, len(g), len(w), show(want), show(got))
		}
		return ""
	case string:
		g, ok := got.(string)
		if head, cut := strings.CutSuffix(w, "…"); ok && cut && strings.HasPrefix(g, head) {
			return ""
		}
		if ok && g == w {
			return ""
		}
	default:
		if want == got { // numbers, booleans and null
			return ""
		}
	}
	return fmt.Sprintf("%s: want %s, got %s", at, show(want), show(got))
}
