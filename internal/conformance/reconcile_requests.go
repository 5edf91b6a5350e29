package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// requests applies the rules about requests.
func (x *reconciler) requests() {
	if x.rules.has(ruleExplicit) {
		x.explicit()
	}
	if x.rules.has(ruleShared) && x.played.Scenario.Order == "any" {
		x.shared()
	}
	if x.rules.has(ruleKnownEnd) {
		x.knownEnd()
	}
	for i := range min(len(x.want.Requests), len(x.played.Recording.Requests)) {
		w, ok1 := x.want.Requests[i].(map[string]any)
		g, ok2 := x.played.Recording.Requests[i].(map[string]any)
		if ok1 && ok2 {
			x.modeZero(w, g)
			x.envOrder(w, g)
			x.agent(w, g)
			x.forkMounts(w, g)
			x.forkKeeps(w, g)
			x.empty(w, g)
			x.second(w, g)
			if x.rules.has(ruleCloses) && w["clientClosed"] == false && g["clientClosed"] == true && w["method"] == "GET" {
				x.used(ruleCloses)
				w["clientClosed"] = true
			}
		}
	}
}

// modeZero is about files that nobody may use.
func (x *reconciler) modeZero(w, g map[string]any) {
	if !x.rules.has(ruleModeZero) {
		return
	}
	wt, gt := tarOf(w), tarOf(g)
	for i := range min(len(wt), len(gt)) {
		we, _ := wt[i].(map[string]any)
		ge, _ := gt[i].(map[string]any)
		if mode, _ := ge["mode"].(string); we["mode"] == "0644" && strings.Trim(mode, "0") == "" && mode != "" {
			x.used(ruleModeZero)
			we["mode"] = mode
		}
	}
}

func tarOf(r map[string]any) []any {
	body, _ := r["body"].(map[string]any)
	list, _ := body["tar"].([]any)
	return list
}

// agent is about a text that is not a product name.
func (x *reconciler) agent(w, g map[string]any) {
	text, ok := w["agent"].(string)
	if ok && g["agent"] == nil && x.rules.has(ruleAgent) && strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		x.used(ruleAgent)
		delete(w, "agent")
	}
}

// forkMounts is about the mounts of a fork, which are sent as they were given.
func (x *reconciler) forkMounts(w, g map[string]any) {
	if path, _ := w["path"].(string); !x.rules.has(ruleForkMounts) || !strings.HasSuffix(path, "/fork") {
		return
	}
	sent, ours := jsonOf(w), jsonOf(g)
	if mounts, ok := ours["mounts"]; ok && sent != nil && sent["mounts"] == nil {
		for _, s := range x.played.Scenario.Steps {
			args, _ := decodeJSON(s.Args)
			if given, _ := args.(map[string]any); s.Op == "fork" && differs("", given["mounts"], mounts) == "" {
				x.used(ruleForkMounts)
				sent["mounts"] = mounts
				return
			}
		}
	}
}

// forkKeeps is about a fork that is to be persistent: an option says only that
// it is not.
func (x *reconciler) forkKeeps(w, g map[string]any) {
	if path, _ := w["path"].(string); !x.rules.has(ruleForkKeeps) || !strings.HasSuffix(path, "/fork") {
		return
	}
	sent, ours := jsonOf(w), jsonOf(g)
	if _, there := ours["persistent"]; ours != nil && !there && sent["persistent"] == true {
		x.used(ruleForkKeeps)
		delete(sent, "persistent")
	}
}

// second is about an extension that is shorter than any that the API takes.
func (x *reconciler) second(w, g map[string]any) {
	sent, ours := jsonOf(w), jsonOf(g)
	path, _ := w["path"].(string)
	less, _ := sent["duration"].(float64)
	if x.rules.has(ruleSecond) && strings.HasSuffix(path, "/extend-timeout") && less > 0 && less < 1000 && ours["duration"] == 1000.0 {
		x.used(ruleSecond)
		sent["duration"] = 1000.0
	}
}

// empty is about text and numbers that say nothing, for which the API has no
// use.
func (x *reconciler) empty(w, g map[string]any) {
	if !x.rules.has(ruleEmpty) {
		return
	}
	sent, ours := jsonOf(w), jsonOf(g)
	for k, v := range sent {
		if _, there := ours[k]; !there && ours != nil && (v == "" || v == 0.0) {
			x.used(ruleEmpty)
			delete(sent, k)
		}
	}
	query, _ := w["query"].([]any)
	also, _ := g["query"].([]any)
	w["query"] = slices.DeleteFunc(query, func(p any) bool {
		pair, _ := p.([]any)
		says := len(pair) == 2 && pair[1] != "" && pair[1] != "0"
		if says || slices.ContainsFunc(also, func(q any) bool { return differs("", p, q) == "" }) {
			return false
		}
		x.used(ruleEmpty)
		return true
	})
}

// jsonOf returns the JSON body of a request.
func jsonOf(r map[string]any) map[string]any {
	body, _ := r["body"].(map[string]any)
	sent, _ := body["json"].(map[string]any)
	return sent
}

// envOrder is about the environment of a user's command, which becomes
// arguments.
func (x *reconciler) envOrder(w, g map[string]any) {
	wa, ga := sudoArgs(w), sudoArgs(g)
	if !x.rules.has(ruleEnvOrder) || wa == nil || len(wa) != len(ga) || differs("", wa, ga) == "" {
		return
	}
	from := slices.Index(wa, any("env")) + 1
	if from == 0 {
		return
	}
	to := from
	for to < len(wa) && strings.Contains(fmt.Sprint(wa[to]), "=") {
		to++
	}
	slices.SortFunc(wa[from:to], func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	x.used(ruleEnvOrder)
}

func sudoArgs(r map[string]any) []any {
	sent := jsonOf(r)
	if sent["command"] != "sudo" {
		return nil
	}
	args, _ := sent["args"].([]any)
	return args
}

// shared is about calls that find the sandbox stopped at the same time: the
// official SDK makes some requests once for each call, this SDK once for all.
func (x *reconciler) shared() {
	got := slices.Clone(x.played.Recording.Requests)
	var kept []any
	dropped := 0
	for _, w := range x.want.Requests {
		same := func(g any) bool { return differs("", tolerant(w), tolerant(g)) == "" }
		if i := slices.IndexFunc(got, same); i >= 0 {
			got = slices.Delete(got, i, i+1)
			kept = append(kept, w)
			continue
		}
		if !isResume(w) || !slices.ContainsFunc(kept, same) {
			return
		}
		dropped++
		x.release(w)
	}
	if dropped == 0 || len(got) > 0 {
		return
	}
	x.used(ruleShared)
	x.want.Requests = kept
	for _, r := range x.want.Results {
		// These are the requests of the parallel calls; earlier ones have no
		// concurrent calls.
		if n, ok := seenOf(r); ok && n > len(kept) {
			r.(map[string]any)["seen"] = float64(n - dropped)
		}
	}
}

// knownEnd is about requesting the end of a command again after its log was
// read to the end, when this SDK already knows it.
func (x *reconciler) knownEnd() {
	got := x.played.Recording.Requests
	for i := 0; i < len(x.want.Requests); i++ {
		w, _ := x.want.Requests[i].(map[string]any)
		path, _ := w["path"].(string)
		if w["method"] != "GET" || !strings.Contains(path, "/cmd/") || strings.HasSuffix(path, "/logs") || !strings.Contains(fmt.Sprint(w["query"]), "[wait true]") {
			continue
		}
		if i < len(got) && differs("", question(w), question(got[i])) == "" {
			continue
		}
		read := slices.ContainsFunc(x.want.Requests[:i], func(r any) bool { return r.(map[string]any)["path"] == path+"/logs" })
		if !read {
			continue
		}
		x.used(ruleKnownEnd)
		x.release(w)
		x.drop(i)
		i--
	}
}

// drop removes a request from the wanted recording.
func (x *reconciler) drop(i int) {
	x.want.Requests = slices.Delete(x.want.Requests, i, i+1)
	for _, r := range x.want.Results {
		if n, ok := seenOf(r); ok && n > i {
			r.(map[string]any)["seen"] = float64(n - 1)
		}
	}
}

// isResume reports whether a request looks at a session or starts one.
func isResume(r any) bool {
	m, _ := r.(map[string]any)
	path, _ := m["path"].(string)
	rest, ok := strings.CutPrefix(path, "/api/v2/sandboxes/")
	if !ok || m["method"] != "GET" {
		return false
	}
	rest, _ = strings.CutPrefix(rest, "sessions/")
	return !strings.Contains(rest, "/")
}

// release removes an exchange that is accounted for from those that were not
// requested.
func (x *reconciler) release(request any) {
	m, _ := request.(map[string]any)
	on := fmt.Sprintf("%v %v", m["method"], m["path"])
	if k := slices.Index(x.played.Unused, on); k >= 0 {
		x.played.Unused = slices.Delete(x.played.Unused, k, k+1)
	}
}

// explicit is about a token passed by the caller that looks like one of
// Vercel's own: the official SDK takes the team from it and replaces it by a
// fresh one. This SDK sends it unchanged.
func (x *reconciler) explicit() {
	given := map[string]any{} // the team, by the header
	for _, creds := range x.credentials() {
		if token, _ := creds["token"].(string); hasOwner(token) {
			text, _ := Unsubstitute("Bearer "+token, x.played.Vars).(string)
			given[text] = creds["teamId"]
		}
	}
	if len(given) == 0 {
		return
	}
	got := x.played.Recording.Requests
	for i := 0; i < len(x.want.Requests); i++ {
		w, _ := x.want.Requests[i].(map[string]any)
		path, _ := w["path"].(string)
		if i < len(got) {
			g, _ := got[i].(map[string]any)
			if g["path"] == path && g["method"] == w["method"] {
				x.asGiven(w, g, given)
				continue
			}
		}
		if !strings.HasPrefix(path, "/__") {
			return
		}
		x.used(ruleExplicit)
		x.release(w)
		x.drop(i)
		i--
	}
}

// asGiven puts the given credentials in place of those that the official SDK made
// of them.
func (x *reconciler) asGiven(w, g map[string]any, given map[string]any) {
	wh, _ := w["headers"].(map[string]any)
	gh, _ := g["headers"].(map[string]any)
	auth, _ := gh["authorization"].(string)
	team, ours := given[auth]
	if wh == nil || !ours || differs("", w["headers"], g["headers"]) == "" && differs("", w["query"], g["query"]) == "" {
		return
	}
	x.used(ruleExplicit)
	wh["authorization"] = auth
	query, _ := w["query"].([]any)
	for _, p := range query {
		if pair, _ := p.([]any); len(pair) == 2 && pair[0] == "teamId" {
			pair[1] = team
		}
	}
}

// credentials returns all those that the scenario passes.
func (x *reconciler) credentials() []map[string]any {
	all := []map[string]any{x.played.Scenario.Credentials}
	for _, s := range x.played.Scenario.Steps {
		for _, raw := range []json.RawMessage{s.Credentials, s.Args} {
			var m map[string]any
			if json.Unmarshal(raw, &m) == nil {
				all = append(all, m)
			}
		}
	}
	back, _ := plain(all).([]any)
	var out []map[string]any
	for _, v := range back {
		if m, ok := v.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// hasOwner reports whether a token is a JWT that names its team.
func hasOwner(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Owner string `json:"owner_id"`
	}
	return err == nil && json.Unmarshal(raw, &claims) == nil && claims.Owner != ""
}
