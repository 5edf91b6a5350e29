package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOpeningFollows: after follow, the end of the caller's context during the start does not
// end the context.
func TestOpeningFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, end := context.WithCancel(t.Context())
		o := newStartContext(caller, time.Minute)
		defer o.release()
		end()
		time.Sleep(30 * time.Second)
		live, stop := context.WithCancel(context.Background())
		o.follow(live)
		time.Sleep(time.Hour)
		require.NoError(t, o.Context.Err())
		stop()
		synctest.Wait()
		assert.Error(t, o.Context.Err())
	})
}
