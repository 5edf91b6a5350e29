package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"sync"
	"time"
)

func opEnv(c *call) (any, error) {
	var a struct {
		Set   map[string]string `json:"set"`
		Unset []string          `json:"unset"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	for k, v := range a.Set {
		if err := os.Setenv(k, v); err != nil {
			return nil, err
		}
	}
	for _, k := range a.Unset {
		if err := os.Unsetenv(k); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func opSleep(c *call) (any, error) {
	var a struct {
		Ms float64 `json:"ms"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	time.Sleep(millis(a.Ms))
	return nil, nil
}

func opAwaitSeen(c *call) (any, error) {
	var a struct {
		Count int `json:"count"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	for i := 0; i < 250 && c.d.seen() < a.Count; i++ {
		time.Sleep(20 * time.Millisecond)
	}
	return nil, nil
}

func opWriteLocalFile(c *call) (any, error) {
	var a struct {
		Path string `json:"path"`
		UTF8 string `json:"utf8"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	return nil, os.WriteFile(a.Path, []byte(a.UTF8), 0o644)
}

func opLocalFile(c *call) (any, error) {
	var a struct {
		Path  string   `json:"path"`
		JSON  bool     `json:"json"`
		Times []string `json:"times"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	info, err := os.Stat(a.Path)
	if err != nil {
		return map[string]any{"exists": false}, nil
	}
	raw, err := os.ReadFile(a.Path)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"mode": fmt.Sprintf("0%o", info.Mode().Perm())}
	if !a.JSON {
		maps.Copy(out, normBytes(raw).(map[string]any))
		return out, nil
	}
	var value map[string]any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, err
	}
	now := float64(time.Now().UnixMilli()) / 1000
	for _, k := range a.Times {
		in := math.NaN()
		if t, ok := value[k].(float64); ok {
			in = math.Round((t-now)/60) * 60
		}
		if math.IsNaN(in) {
			value[k] = map[string]any{"inSeconds": nil}
		} else {
			value[k] = map[string]any{"inSeconds": in}
		}
	}
	out["json"] = normDeep(value)
	return out, nil
}

func opParallel(c *call) (any, error) {
	var a struct {
		Branches [][]Step `json:"branches"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	d := c.d
	d.mu.Lock()
	d.inParallel++
	d.mu.Unlock()
	all := make([]any, len(a.Branches))
	var wg, ready sync.WaitGroup
	ready.Add(len(a.Branches))
	for i, steps := range a.Branches {
		wg.Go(func() {
			ready.Done()
			ready.Wait() // they begin together
			results := []any{}
			for j := range steps {
				results = append(results, d.step(c.ctx, &steps[j], true))
			}
			all[i] = results
		})
	}
	wg.Wait()
	d.mu.Lock()
	d.inParallel--
	d.mu.Unlock()
	return all, nil
}
