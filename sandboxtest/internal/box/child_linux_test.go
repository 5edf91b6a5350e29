package box

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// TestParentDeathSignal: a command that requests to die with its parent lives as long as
// the machine, whichever user runs it and whatever else is started.
func TestParentDeathSignal(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	needs.Programs(t, "setpriv")
	eachBox(t, func(t *testing.T, b *Box) {
		clients, each := 8, 15
		if !needs.Slow() {
			clients, each = 3, 1
		}
		var mu sync.Mutex
		ends := make(map[string]map[int]int)
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for range each {
					go backend.UseUpThread(func() {}) // ends a thread, as the start of other commands does
					for _, user := range []string{"", backend.RootUser} {
						_, errOut, code := run(t, b, backend.Spec{Path: "setpriv", Args: strings.Fields("--pdeathsig KILL -- sleep 0.05"), User: user})
						mu.Lock()
						if ends[user] == nil {
							ends[user] = make(map[int]int)
						}
						ends[user][code]++
						mu.Unlock()
						assert.Empty(t, errOut)
					}
				}
			})
		}
		all.Wait()
		for _, user := range []string{"", backend.RootUser} {
			assert.Equal(t, map[int]int{0: clients * each}, ends[user], "exit codes of user %q", user)
		}
	})
}

// TestCalledName: a program's own name is the one with which it was started, as in a
// shell, and not its path, for every user.
func TestCalledName(t *testing.T) {
	t.Parallel()
	needs.GNU(t) // BusyBox acts by the name with which it is started
	eachBox(t, func(t *testing.T, b *Box) {
		sh(t, b, `mkdir here && ln -s "$(command -v sh)" here/other`)
		const show = `tr '\000' ' ' <"/proc/$$/cmdline"; exit`
		for _, user := range []string{"", backend.RootUser} {
			for name, want := range map[string]string{
				"sh": "sh -c ", "/bin/sh": "/bin/sh -c ", "here/other": "here/other -c ", "other": "other -c ",
			} {
				if !needs.Slow() && strings.HasSuffix(name, "sh") {
					continue // the link has another name than its program
				}
				out, errOut, code := run(t, b, backend.Spec{Path: name, Args: []string{"-c", show}, User: user, Env: []string{"PATH=/usr/bin:/bin:here"}})
				assert.Zero(t, code, errOut)
				assert.Truef(t, strings.HasPrefix(out, want), "%s as %q: %q", name, user, out)
			}
		}
	})
}
