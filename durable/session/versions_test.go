package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/workflow"
)

// changes has for each change of what the workflow decides a session in which it
// shows. The function reports whether the decision was the one since the change;
// version makes an environment take that of either.
var changes = map[string]func(t *testing.T, version func(*play) *play) (since bool){
	"holds": func(t *testing.T, version func(*play) *play) bool {
		p := version(newPlay(t, nil))
		p.update(time.Minute, "hold", updateHold, holdUpdate{"a", time.Minute})
		p.destroyAt(5 * time.Minute)
		p.run(Policy{})
		return p.outcomes["hold"] == "done"
	},
}

// TestVersions: a session that began before a change of what the workflow decides
// goes on as it began, and one that begins now decides as now. Without its
// GetVersion a change fails here.
func TestVersions(t *testing.T) {
	t.Parallel()
	inCode := inCode(t, changeInCode, "*.go", "../*.go")
	for _, change := range inCode {
		assert.Contains(t, changes, change, "a change that no session shows")
	}
	assert.Len(t, inCode, len(changes))
	for change, plays := range changes {
		for name, version := range map[string]workflow.Version{"before": workflow.DefaultVersion, "since": 1} {
			t.Run(change+" "+name, func(t *testing.T) {
				t.Parallel()
				asked := false
				since := plays(t, func(p *play) *play {
					p.OnGetVersion(change, workflow.DefaultVersion, workflow.Version(1)).Return(
						func(string, workflow.Version, workflow.Version) workflow.Version { asked = true; return version })
					return p
				})
				assert.Equal(t, version == 1, since)
				assert.True(t, asked)
			})
		}
	}
}
