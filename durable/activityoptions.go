package durable

import (
	"path"
	"time"

	"go.temporal.io/sdk/workflow"
)

// withCancelWait makes a canceled call wait for the end of its activity.
func withCancelWait(ctx workflow.Context) workflow.Context {
	opts := workflow.GetActivityOptions(ctx)
	opts.WaitForCancellation = true
	return workflow.WithActivityOptions(ctx, opts)
}

// withShortOptions sets the options of all activities but the one that follows a command.
// They are retried until they succeed.
func (s *Sandbox) withShortOptions(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Minute, HeartbeatTimeout: s.Options.heartbeat(), RetryPolicy: retries(s.Options.longestPause()),
		WaitForCancellation: workflow.GetActivityOptions(ctx).WaitForCancellation,
	})
}

// followTime limits one attempt to follow a command. The next attempt reads the command's
// output from its start.
const followTime = 24 * time.Hour

// withSummary names the command in the summary of an activity, which Temporal's page shows.
func withSummary(ctx workflow.Context, output string) workflow.Context {
	opts := workflow.GetActivityOptions(ctx)
	opts.Summary = path.Base(output)
	return workflow.WithActivityOptions(ctx, opts)
}

// withFollowOptions sets the options for following a command.
func (s *Sandbox) withFollowOptions(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: s.Options.FollowQueue, StartToCloseTimeout: followTime, HeartbeatTimeout: s.Options.heartbeat(), RetryPolicy: retries(followPause),
	})
}
