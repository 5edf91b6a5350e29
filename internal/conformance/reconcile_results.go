package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// failure applies the rules about a call that fails with either SDK, or with
// both in different ways.
func (x *reconciler) failure(w, g map[string]any, s *Step, wantErr, gotErr map[string]any) {
	kind, _ := wantErr["kind"].(string)
	message, _ := wantErr["message"].(string)
	_, gaveValue := g["value"]
	accept := func(rule string) {
		x.used(rule)
		for _, k := range []string{"value", "error", "partial", "piped"} {
			delete(w, k)
		}
		for _, k := range []string{"value", "error", "partial", "piped"} {
			if v, ok := g[k]; ok {
				w[k] = v
			}
		}
	}
	if x.rules.has(ruleDriveErrors) && kind == "APIError" && wantErr["sandboxName"] == "drives" && gotErr["sandboxName"] == nil {
		x.used(ruleDriveErrors)
		delete(wantErr, "sandboxName")
	}
	gotStatus, _ := gotErr["status"].(float64)
	switch {
	case x.rules.has(ruleMedia) && kind == "APIError" && strings.HasPrefix(message, "Expected a stream of ") && gaveValue && x.looseMediaType():
		accept(ruleMedia)
	case x.rules.has(ruleUnknown) && kind == "ValidationError" && gaveValue && x.unknownRecords():
		accept(ruleUnknown)
	case x.rules.has(ruleSnapshoting) && wantErr["code"] == "sandbox_snapshotting" && gaveValue && s.Op == "update":
		accept(ruleSnapshoting)
	case slices.Contains(x.played.Rules, ruleWait) && s.Op == "wait" && strings.HasPrefix(message, "Response JSON is not valid") && gotStatus == 418:
		accept(ruleWait)
	case x.rules.has(ruleNoSession) && gotStatus == 404 && wantErr == nil && w["value"] == nil && strings.HasPrefix(s.Op, "readFile"):
		if code, _ := gotErr["code"].(string); strings.HasSuffix(code, "_not_found") {
			accept(ruleNoSession)
		}
	case slices.Contains(x.played.Rules, ruleDownload) && s.Op == "downloadFile" && kind == "NetworkError" && gotStatus == 418:
		accept(ruleDownload)
	case slices.Contains(x.played.Rules, ruleWait) && s.Op == "wait" && transient(wantErr) && gotStatus == 418:
		accept(ruleWait)
	case x.rules.has(ruleDeletes) && s.Op == "delete" && wantErr["status"] == 404.0 && gaveValue && x.deletedTwice():
		accept(ruleDeletes)
	case x.rules.has(ruleFirstError) && kind == "ValidationError" && gotErr["kind"] == "StreamError" && x.errorFirst():
		accept(ruleFirstError)
	case x.rules.has(ruleClose) && s.Op == "dispose" && gaveValue && (wantErr["status"] == 410.0 || wantErr["status"] == 404.0):
		accept(ruleClose)
	case x.rules.has(ruleLast) && wantErr != nil && gotErr != nil && differs("", wantErr, gotErr) != "" && transient(wantErr) && transient(gotErr):
		accept(ruleLast)
	}
	if x.rules.has(ruleAbort) && kind == "Abort" && gotErr["kind"] == "Abort" && w["timing"] == "ok" {
		if t, _ := g["timing"].(string); t == "too fast" {
			x.used(ruleAbort)
			w["timing"] = t
		}
	}
}

// transient reports whether both SDKs retry after an error.
func transient(e map[string]any) bool {
	status, _ := e["status"].(float64)
	return e["kind"] == "NetworkError" || e["kind"] == "APIError" && (status >= 500 || status == 429)
}

// looseMediaType reports whether the script has a stream with a valid content
// type that is not spelled in the only way the official SDK accepts.
func (x *reconciler) looseMediaType() bool {
	for _, ex := range x.played.Scenario.Server {
		for k, v := range ex.Headers {
			text, _ := v.(string)
			media, _, _ := strings.Cut(strings.ToLower(text), ";")
			if strings.EqualFold(k, "content-type") && text != "application/x-ndjson" && strings.TrimSpace(media) == "application/x-ndjson" {
				return true
			}
		}
	}
	return false
}

// unknownRecords reports whether the script has a record of an output stream
// that this version does not know.
func (x *reconciler) unknownRecords() bool {
	for _, ex := range x.played.Scenario.Server {
		for _, raw := range ex.NDJSON {
			var rec struct {
				Stream *string `json:"stream"`
			}
			if json.Unmarshal(raw, &rec) == nil && rec.Stream != nil && !slices.Contains([]string{"stdout", "stderr", "error"}, *rec.Stream) {
				return true
			}
		}
	}
	return false
}

// errorFirst reports whether the script has a stream that begins with an error.
func (x *reconciler) errorFirst() bool {
	for _, ex := range x.played.Scenario.Server {
		var rec struct {
			Stream string `json:"stream"`
		}
		if len(ex.NDJSON) > 0 && json.Unmarshal(ex.NDJSON[0], &rec) == nil && rec.Stream == "error" {
			return true
		}
	}
	return false
}

// logLost is about the output of a command that was started with writers and
// whose log returns an error: here it is reported as a lost stream.
func logLost(want, got any) bool {
	w, _ := want.(map[string]any)
	g, _ := got.(map[string]any)
	refused, _ := w["error"].(map[string]any)
	lost, _ := g["error"].(map[string]any)
	if refused["kind"] != "APIError" || lost["code"] != "stream_lost" || refused["sessionId"] != lost["sessionId"] {
		return false
	}
	w["error"] = lost
	return true
}

// success applies the rules about values that differ.
func (x *reconciler) success(w, g map[string]any, before []Step, s *Step) {
	if x.rules.has(ruleDomain) && s.Op == "domain" {
		ws, _ := w["value"].(string)
		gs, _ := g["value"].(string)
		if sub, ok := strings.CutPrefix(ws, "https://"); ok && ws != gs && gs != "" {
			if sub, ok = strings.CutSuffix(sub, ".vercel.run"); ok && x.scriptHas(map[string]any{"subdomain": sub, "url": gs}) {
				x.used(ruleDomain)
				w["value"] = gs
			}
		}
	}
	if x.rules.has(ruleFollowed) && s.Op == "piped" && logLost(w["value"], g["value"]) {
		x.used(ruleFollowed)
	}
	if x.rules.has(ruleHandleEnd) && (s.Op == "props" || s.Op == "serialize") && s.On != nil {
		waited := slices.ContainsFunc(before, func(b Step) bool { return b.Op == "wait" && b.On != nil && *b.On == *s.On })
		if waited && handleEnd(w["value"], g["value"]) {
			x.used(ruleHandleEnd)
		}
	}
	if x.rules.has(ruleRegion) && s.Op == "props" {
		wm, _ := w["value"].(map[string]any)
		gm, _ := g["value"].(map[string]any)
		if ours, asked := gm["region"]; asked && ours == nil && wm["region"] == "iad1" {
			x.used(ruleRegion)
			wm["region"] = nil
		}
	}
	if s.Op == "props" {
		wm, _ := w["value"].(map[string]any)
		gm, _ := g["value"].(map[string]any)
		x.renewed(wm, gm)
		x.project(wm, gm)
	}
	if x.rules.has(rulePolicyParts) && unreadTold(w["value"], g["value"]) {
		x.used(rulePolicyParts)
	}
	if x.rules.has(ruleZero) && zeroUsage(w["value"], g["value"]) {
		x.used(ruleZero)
	}
	if x.rules.has(ruleRegions) && regionsTold(w["value"], g["value"]) {
		x.used(ruleRegions)
	}
	if slices.Contains(x.played.Rules, ruleStarting) {
		started(w["value"], g["value"])
	}
	if x.rules.has(ruleUTF8) {
		for _, k := range []string{"value", "piped", "partial"} {
			if v, changed := mended(w[k], g[k]); changed {
				x.used(ruleUTF8)
				w[k] = v
			}
		}
	}
}

// deletedTwice reports whether the official SDK sent a delete again.
func (x *reconciler) deletedTwice() bool {
	sent := map[any]int{}
	for _, r := range x.want.Requests {
		if m, _ := r.(map[string]any); m["method"] == "DELETE" {
			sent[m["path"]]++
		}
	}
	for _, n := range sent {
		if n > 1 {
			return true
		}
	}
	return false
}

// renewed copies to w the metadata of a sandbox that a response to a resume
// has, and that the official SDK does not look at.
func (x *reconciler) renewed(w, g map[string]any) {
	if !x.rules.has(ruleRenewed) {
		return
	}
	for _, ex := range x.played.Scenario.Server {
		var resp struct{ Sandbox map[string]any }
		if fmt.Sprint(ex.Query["resume"]) != "true" || json.Unmarshal(ex.JSON, &resp) != nil {
			continue
		}
		for k, now := range g {
			if old, there := w[k]; there && differs("", old, now) != "" && differs("", resp.Sandbox[k], now) == "" {
				x.used(ruleRenewed)
				w[k] = now
			}
		}
	}
}

// project copies to w the project that the API says a drive is in.
func (x *reconciler) project(w, g map[string]any) {
	told, ok := g["projectId"]
	if ok && x.rules.has(ruleProject) && g["driveId"] != nil && w["projectId"] != told && x.scriptHas(map[string]any{"id": g["driveId"], "projectId": told}) {
		x.used(ruleProject)
		w["projectId"] = told
	}
}

// unreadTold copies to w the parts of a policy that the official SDK does not
// know.
func unreadTold(w, g any) bool {
	wv, ok1 := w.(map[string]any)
	gv, ok2 := g.(map[string]any)
	if !ok1 || !ok2 {
		return false
	}
	used := false
	if list, ok := gv["unread"].([]any); ok && wv["unread"] == nil {
		wv["unread"], used = list, true
	}
	for k := range wv {
		used = unreadTold(wv[k], gv[k]) || used
	}
	return used
}

// usage are the fields that report how much was used so far.
var usage = []string{
	"totalEgressBytes", "totalIngressBytes", "totalActiveCpuDurationMs", "totalDurationMs", "duration", "activeCpuDurationMs",
	"activeCpuUsageMs", "networkTransfer",
}

// zeroUsage copies to w usage of zero, which this SDK does not distinguish from
// unknown usage.
func zeroUsage(w, g any) bool {
	used := false
	switch wv := w.(type) {
	case []any:
		gv, _ := g.([]any)
		for i := range min(len(wv), len(gv)) {
			used = zeroUsage(wv[i], gv[i]) || used
		}
	case map[string]any:
		gv, ok := g.(map[string]any)
		for _, k := range usage {
			nothing := differs("", wv[k], 0.0) == "" || differs("", wv[k], map[string]any{"ingress": 0.0, "egress": 0.0}) == ""
			if now, there := gv[k]; ok && nothing && now == nil {
				if wv[k] = nil; !there {
					delete(wv, k)
				}
				used = true
			}
		}
		for k := range wv {
			used = zeroUsage(wv[k], gv[k]) || used
		}
	}
	return used
}

// regionsTold copies to w the list of regions of a snapshot that has none
// there.
func regionsTold(w, g any) bool {
	used := false
	switch wv := w.(type) {
	case []any:
		gv, _ := g.([]any)
		for i := range min(len(wv), len(gv)) {
			used = regionsTold(wv[i], gv[i]) || used
		}
	case map[string]any:
		gv, _ := g.(map[string]any)
		list, _ := gv["regions"].([]any)
		_, picked := wv["regions"]
		if wv["regions"] == nil && len(list) == 1 && (picked || wv["sourceSessionId"] != nil && list[0] == wv["region"]) {
			wv["regions"], used = list, true
		}
		for k := range wv {
			used = regionsTold(wv[k], gv[k]) || used
		}
	}
	return used
}

// scriptHas reports whether the script, or an argument, has an object with these
// fields.
func (x *reconciler) scriptHas(fields map[string]any) bool {
	var find func(v any) bool
	find = func(v any) bool {
		switch v := v.(type) {
		case []any:
			return slices.ContainsFunc(v, find)
		case map[string]any:
			all := true
			for k, want := range fields {
				all = all && v[k] == want
			}
			return all || slices.ContainsFunc(slices.Collect(maps.Values(v)), find)
		}
		return false
	}
	for _, ex := range x.played.Scenario.Server {
		if v, ok := decodeJSON(ex.JSON); ok && find(v) {
			return true
		}
	}
	return slices.ContainsFunc(x.played.Scenario.Steps, func(s Step) bool {
		v, ok := decodeJSON(s.Args)
		return ok && find(v)
	})
}

// started sets in w that a session has started.
func started(w, g any) {
	wm, _ := w.(map[string]any)
	gm, _ := g.(map[string]any)
	if wm != nil && wm["status"] == "pending" && gm["status"] == "running" {
		wm["status"] = "running"
	}
}

// handleEnd copies to w what a handle knows about its command's end.
func handleEnd(w, g any) bool {
	wm, _ := w.(map[string]any)
	gm, _ := g.(map[string]any)
	used := false
	for _, k := range []string{"exitCode", "durationMs"} {
		wv, inWant := wm[k]
		gv, inGot := gm[k]
		if inGot && gv != nil && wv == nil && (inWant || k == "durationMs" && gm["name"] != nil) {
			wm[k], used = gv, true
		}
	}
	if wm != nil && gm != nil && wm["cmd"] != nil {
		used = handleEnd(wm["cmd"], gm["cmd"]) || used
	}
	return used
}

var replacement = regexp.MustCompile("\uFFFD+")

// mended returns v with every string in which the official SDK lost a character
// as this SDK has it; the rest of the string must be equal.
func mended(w, g any) (any, bool) {
	switch wv := w.(type) {
	case string:
		gv, ok := g.(string)
		if !ok || gv == wv || !strings.Contains(wv, "\uFFFD") || strings.Contains(gv, "\uFFFD") {
			return w, false
		}
		parts := replacement.Split(wv, -1)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		if m, err := regexp.MatchString("(?s)^"+strings.Join(parts, "[^\x00-\x7F]{1,2}")+"$", gv); err != nil || !m {
			return w, false
		}
		return gv, true
	case []any:
		gv, ok := g.([]any)
		if !ok || len(gv) != len(wv) {
			return w, false
		}
		changedAny := false
		for i := range wv {
			v, changed := mended(wv[i], gv[i])
			wv[i], changedAny = v, changedAny || changed
		}
		return wv, changedAny
	case map[string]any:
		gv, ok := g.(map[string]any)
		if !ok {
			return w, false
		}
		changedAny := false
		for k := range wv {
			v, changed := mended(wv[k], gv[k])
			wv[k], changedAny = v, changedAny || changed
		}
		return wv, changedAny
	default:
		return w, false
	}
}
