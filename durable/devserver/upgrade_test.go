package devserver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// optionsOf returns the options of a build's workers. Their sessions move to the current
// build with their next decision.
func optionsOf(build string) worker.Options {
	return worker.Options{DeploymentOptions: worker.DeploymentOptions{
		UseVersioning:             true,
		Version:                   worker.WorkerDeploymentVersion{DeploymentName: "sandbox", BuildID: build},
		DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
	}}
}

// versioned starts a worker of a build.
func versioned(t *testing.T, c client.Client, build string, activities *durable.Worker) worker.Worker {
	w := worker.New(c, queue, optionsOf(build))
	session.Register(w, activities)
	require.NoError(t, w.Start())
	return w
}

// makeCurrent makes a build current, so that it gets the sessions.
func makeCurrent(t *testing.T, c client.Client, build string) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool { // the server must have seen the build
		_, err = c.WorkerDeploymentClient().GetHandle("sandbox").SetCurrentVersion(t.Context(), client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		return err == nil
	}, testkit.Patience, 100*time.Millisecond, "%v", err)
}

// TestUpgrade: while several sessions work, a new build of the workers takes over and the
// old one stops. No command is lost or runs twice, no session fails, and no viewer misses
// an event.
func TestUpgrade(t *testing.T) {
	const rounds = 3 // one with the old build, one with both, one with the new build
	emulator := sandboxtest.New(t, nil)
	_, c := startTemporal(t)
	store := durable.Dir(t.TempDir())
	activities := &durable.Worker{Client: emulator.Client(), Output: store}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	old := versioned(t, c, "1", activities)
	makeCurrent(t, c, "1")
	sessions := session.New(c, &session.Options{
		Sandbox: emulator.Client(), Output: store, Policy: session.Policy{HistoryLimit: 150}, Defaults: durable.Options{Heartbeat: 2 * time.Second},
	})
	var working sync.WaitGroup
	begun, done := make(chan struct{}, rounds*4), make(chan struct{}, rounds*4)
	var round [rounds]chan struct{}
	for i := range round {
		round[i] = make(chan struct{})
	}
	ids := []string{"ses-a", "ses-b", "ses-c", "ses-d"}
	for _, id := range ids {
		_, err := sessions.Start(ctx, &session.StartOptions{ID: id})
		require.NoError(t, err)
		working.Go(func() {
			var want strings.Builder
			for n, next := range round {
				select {
				case <-next:
				case <-ctx.Done():
					return
				}
				for i := range 3 { // the first one runs for a while, and the others wait
					fmt.Fprintln(&want, n, i)
					_, err := sessions.Command(ctx, id, session.Command{Command: fmt.Sprintf("echo %d %d >> log; sleep 0.%d", n, i, 9-4*i)})
					assert.NoError(t, err)
				}
				begun <- struct{}{}
				ended, seq := 0, 0
				for e, err := range sessions.Events(ctx, id, session.Cursor{}) {
					if !assert.NoError(t, err) || !assert.NotEqual(t, session.TypeResult, e.Type, e.Error) {
						break
					}
					if e.Type != session.TypeCommandOutput {
						assert.Equal(t, seq, e.Seq)
						seq++
					}
					if e.Type == session.TypeCommandEnd {
						assert.Equal(t, durable.Exited, e.Outcome)
						if ended++; ended == 3*(n+1) {
							break
						}
					}
				}
				done <- struct{}{}
			}
			sb, err := emulator.Client().Get(ctx, "durable-"+id, nil)
			if assert.NoError(t, err) {
				var log strings.Builder
				_, err := sb.RunCommand(ctx, "cat", []string{"log"}, &sandbox.CommandOptions{Stdout: &log})
				assert.NoError(t, err)
				assert.Equal(t, want.String(), log.String(), "each command ran once, in order")
			}
		})
	}
	all := func(c <-chan struct{}) {
		for range ids {
			<-c
		}
	}
	close(round[0])
	all(begun)
	all(done)
	close(round[1])
	all(begun)
	renewed := versioned(t, c, "2", activities)
	t.Cleanup(renewed.Stop)
	makeCurrent(t, c, "2")
	all(done)
	close(round[2])
	all(begun)
	old.Stop()
	all(done)
	working.Wait()
	for _, id := range ids {
		d, err := c.DescribeWorkflowExecution(t.Context(), id, "")
		require.NoError(t, err)
		assert.Equal(t, "2", d.GetWorkflowExecutionInfo().GetVersioningInfo().GetDeploymentVersion().GetBuildId())
		require.NoError(t, sessions.Destroy(t.Context(), id, nil))
	}
}
