package line

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/internal/wire"
)

// TestLimitsAgree: the command line accepts values within the table of limits and refuses
// others. Package fields tests the client and the emulator with the same table.
func TestLimitsAgree(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]struct {
		parse     func(string) (int, error)
		good, bad int
	}{
		"least port":    {ParsePort, wire.MinPort, wire.MinPort - 1},
		"greatest port": {ParsePort, wire.MaxPort, wire.MaxPort + 1},
		"vCPUs":         {ParseVCPUs, wire.MaxVCPUs, 3},
		"no vCPUs":      {ParseVCPUs, 1, 0},
	} {
		_, err := l.parse(strconv.Itoa(l.good))
		assert.NoError(t, err, name)
		_, err = l.parse(strconv.Itoa(l.bad))
		assert.Error(t, err, name)
	}
}
