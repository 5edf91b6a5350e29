package settings

import (
	"encoding/json"
	"fmt"
	"path/filepath"
)

// The official CLI keeps the choice about its telemetry in telemetry.json. This
// program has no telemetry, but keeps the file as it would, so that the choice
// holds for both.
func (d Dirs) telemetryFile() string { return filepath.Join(d.Config, "telemetry.json") }

// SetTelemetry notes the choice, and leaves what else is in the file as it is.
func (d Dirs) SetTelemetry(enabled bool) error {
	return update(d.telemetryFile(), func(data []byte) ([]byte, error) {
		all := map[string]any{}
		if len(data) > 0 {
			if err := json.Unmarshal(data, &all); err != nil {
				return nil, fmt.Errorf("%s: %w", d.telemetryFile(), err)
			}
		}
		if all == nil { // the file says null
			all = map[string]any{}
		}
		all["enabled"] = enabled
		data, err := json.MarshalIndent(all, "", "  ")
		return append(data, '\n'), err
	})
}
