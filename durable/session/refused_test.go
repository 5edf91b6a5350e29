package session

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestOutlastsRefusals: while the platform refuses its requests, a session waits and says
// why. It continues when it is used, or by itself. A session that is destroyed in the
// meantime stops its machine as soon as it can.
func TestOutlastsRefusals(t *testing.T) {
	const cutInEnd = 850 // cuts a response between its first record and the end of its last one; both contain the command
	for _, status := range []int{http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusBadRequest} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			p := newTestSession(t, nil)
			refuse := func(from, to time.Duration, operation sandboxtest.Operation) {
				var stop func()
				p.At(from, func() {
					stop = p.Server.Inject(sandboxtest.Fault{Operation: operation, Status: status, Message: "not now"})
				})
				p.At(to, func() { stop() })
			}
			const minute = time.Minute
			p.send(minute, "a", "echo kept > f")
			refuse(30*minute, 40*minute, "") // when the session hibernates
			refuse(60*minute, 70*minute, "") // when it wakes
			p.send(61*minute, "b", "cat f")
			p.send(70*minute+time.Second, "hurries", "true")
			refuse(80*minute, 82*minute, "") // when a command starts
			p.send(81*minute, "c", "cat f")
			refuse(90*minute, 95*minute, sandboxtest.GetCommand) // when a command ends, and the response to its start was cut
			p.At(90*minute, func() {
				p.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, CutAfterBytes: cutInEnd, Times: 1})
			})
			p.send(91*minute, "d", "echo out; exit 4")
			refuse(110*minute, 120*minute, "") // when it is destroyed
			p.send(111*minute, "e", "echo never")
			p.At(115*minute, func() { p.sendUpdate(updateDestroy, DestroyOptions{}) })
			events := p.run(Policy{})
			require.NoError(t, p.GetWorkflowError())

			assert.Equal(t, []string{
				"active", "cmd-1 exited 0", "hibernating", "blocked", "hibernating", "hibernated",
				"resuming", "blocked", "resuming", "active", "cmd-2 exited 0", "cmd-3 exited 0",
				"blocked", "active", "cmd-4 exited 0",
				"blocked", "active", "cmd-5 exited 4",
				"blocked", "cmd-6 lost", "destroyed", "destroyed",
			}, story(events))
			assert.Equal(t, "kept\n", p.output("cmd-2"))
			assert.Equal(t, "out\n", p.output("cmd-5"))
			for _, e := range events {
				if e.State == StateBlocked {
					assert.Contains(t, e.Error, "not now")
				}
				if e.Type == TypeCommandEnd && e.ID == "cmd-2" {
					assert.Less(t, e.At.Time().Sub(events[0].At.Time()), 71*minute, "the session retries when it is used, not at the end of the pause")
				}
			}
			for info, err := range p.Server.Client().List(t.Context(), nil) {
				require.NoError(t, err)
				assert.Equal(t, sandbox.StatusStopped, info.Status)
			}
		})
	}
}
