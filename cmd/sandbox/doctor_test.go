package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDoctorLive: the report says of each row which mark to change, which are none
// to correct where the emulator is asked, and tells no secret.
func TestDoctorLive(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	got := d.run("", "--json", "doctor", "--live")
	var findings []struct{ Check, Status, Detail string }
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &findings), "%s%s", got.stdout, got.stderr)
	require.Greater(t, len(findings), 30)
	assert.Equal(t, "answers", findings[0].Check)
	confirmed := 0
	for _, f := range findings {
		if strings.HasPrefix(f.Detail, "mark as observed") {
			confirmed++
		}
		if f.Check == "service" {
			assert.Contains(t, f.Detail, "not Vercel's")
		} else if e := d.server.Enforces(); e.Users && e.Policies {
			assert.Equal(t, "ok", f.Status, "%s: %s", f.Check, f.Detail)
		}
	}
	assert.Greater(t, confirmed, 20)
	c := d.server.Credentials()
	for _, secret := range []string{c.Token, c.TeamID, c.ProjectID} {
		assert.NotContains(t, got.stdout+got.stderr, secret)
	}
	assert.Empty(t, strings.TrimSpace(d.ok("ls", "-a", "-q")))
}
