package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

func (p *testSession) destroyAt(at time.Duration) {
	p.At(at, func() { p.sendUpdate(updateDestroy, DestroyOptions{}) })
}

// count returns how often a word is in the story of the events.
func count(events []Event, word string) (n int) {
	for _, w := range story(events) {
		if w == word {
			n++
		}
	}
	return n
}

// TestRolledBack: if a machine ends without saving its files, an event says when they were
// last saved. If it has saved them, there is no such event.
func TestRolledBack(t *testing.T) {
	for name, end := range map[string]struct {
		play func(p *testSession)
		file string
		lost bool
	}{
		"crashes with a command": {file: "saved\n", lost: true, play: func(p *testSession) {
			p.send(41*time.Minute, "dies", "echo up; sleep 1000")
			p.on(p.whenRead("up"), func() { p.Server.Crash("durable-ses-1") })
		}},
		"crashes between commands": {file: "saved\n", lost: true, play: func(p *testSession) {
			p.At(45*time.Minute, func() { p.Server.Crash("durable-ses-1") })
		}},
		"crashes long before the next command": {file: "saved\n", lost: true, play: func(p *testSession) {
			p.At(45*time.Minute, func() { p.Server.Crash("durable-ses-1") })
			p.send(110*time.Minute, "later", "true")
		}},
		"is stopped by another client": {file: "unsaved\n", play: func(p *testSession) {
			p.At(45*time.Minute, func() {
				sb, err := p.Server.Client().Get(p.t.Context(), "durable-ses-1", &sandbox.GetOptions{NoResume: true})
				require.NoError(p.t, err)
				_, err = sb.Stop(p.t.Context(), nil)
				require.NoError(p.t, err)
			})
		}},
		"hibernates": {file: "unsaved\n", play: func(p *testSession) { p.send(110*time.Minute, "later", "true") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTestSession(t, nil)
			p.send(time.Minute, "saves", "echo saved > f") // the hibernation saves the file
			p.send(40*time.Minute, "writes", "echo unsaved > f")
			end.play(p)
			p.send(2*time.Hour, "looks", "cat f")
			p.destroyAt(150 * time.Minute)
			began := time.Now()
			events := p.run(Policy{})
			require.NoError(t, p.GetWorkflowError())
			last := events[len(events)-1]
			for _, e := range events {
				if e.Type == TypeCommandEnd {
					last = e
				}
				if e.State == StateRolledBack {
					assert.WithinRange(t, e.SavedAt.Time(), began.Add(30*time.Second), began.Add(35*time.Minute), "SavedAt is the time of the hibernation")
				}
			}
			assert.Equal(t, end.file, p.output(last.ID))
			assert.Equal(t, end.lost, count(events, StateRolledBack) == 1, "%q", story(events))
			assert.Zero(t, count(events, StateReset))
		})
	}
}

// TestCheckpoints: a session saves its files after a number of commands, or after a time in
// which there was one. If each machine crashes, that costs no more machines than commands.
func TestCheckpoints(t *testing.T) {
	t.Run("commands", func(t *testing.T) {
		t.Parallel()
		p := newTestSession(t, nil)
		for i := range 5 {
			p.send(time.Duration(i+1)*time.Minute, string(rune('a'+i)), "echo x >> f")
		}
		p.At(10*time.Minute, func() { p.Server.Crash("durable-ses-1") })
		p.send(11*time.Minute, "looks", "wc -l < f | tr -d ' '")
		p.destroyAt(20 * time.Minute)
		events := p.run(Policy{CheckpointCommands: 2})
		require.NoError(t, p.GetWorkflowError())
		assert.Equal(t, "4\n", p.output("cmd-6"), "the files are those of the second checkpoint")
		assert.Equal(t, 1, count(events, StateRolledBack))
		assert.Equal(t, 2, count(events, StateRefreshing), "%q", story(events))
	})
	t.Run("time", func(t *testing.T) {
		t.Parallel()
		p := newTestSession(t, nil)
		p.send(time.Minute, "a", "echo x >> f")
		p.send(2*time.Minute, "b", "echo x >> f")
		p.At(91*time.Minute, func() { p.Server.Crash("durable-ses-1") })
		p.send(92*time.Minute, "looks", "wc -l < f | tr -d ' '")
		p.destroyAt(95 * time.Minute)
		events := p.run(Policy{CheckpointEvery: 10 * time.Minute, IdleAfter: 2 * time.Hour})
		require.NoError(t, p.GetWorkflowError())
		assert.Equal(t, "2\n", p.output("cmd-3"))
		assert.Equal(t, 1, count(events, StateRefreshing), "%q", story(events))
		assert.Equal(t, 1, count(events, StateRolledBack))
	})
	t.Run("crashes", func(t *testing.T) {
		t.Parallel()
		p := newTestSession(t, nil)
		for i := range 4 {
			at := time.Duration(i+1) * 5 * time.Minute
			p.send(at, string(rune('a'+i)), "true")
			p.At(at+2*time.Minute, func() { p.Server.Crash("durable-ses-1") })
		}
		p.destroyAt(time.Hour)
		events := p.run(Policy{CheckpointCommands: 1})
		require.NoError(t, p.GetWorkflowError())
		assert.Equal(t, 4, p.countExits(events))
		assert.LessOrEqual(t, count(events, StateRefreshing), 4)
		assert.LessOrEqual(t, len(events), 60)
	})
}
