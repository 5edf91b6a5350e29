package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// The official CLI keeps the choice about its telemetry in telemetry.json. This
// program has no telemetry, but keeps the file as it would, so that the choice
// holds for both.
func (d Dirs) telemetryFile() string { return filepath.Join(d.Config, "telemetry.json") }

// SetTelemetry notes the choice, and leaves what else is in the file as it is.
func (d Dirs) SetTelemetry(enabled bool) error {
	all := map[string]any{}
	data, err := read(d.telemetryFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(data, &all); err != nil {
			return fmt.Errorf("%s: %w", d.telemetryFile(), err)
		}
		if all == nil { // the file says null
			all = map[string]any{}
		}
	}
	all["enabled"] = enabled
	if data, err = json.MarshalIndent(all, "", "  "); err != nil {
		return err
	}
	return write(d.telemetryFile(), append(data, '\n'))
}
