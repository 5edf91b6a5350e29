package agent

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzAgentWire: an agent handles what sandboxes send, so its data may be invalid. It is
// refused, or is a message that stays the same when it is sent again.
func FuzzAgentWire(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\x00\x00\x00\x1f" + `{"failure":{"Text":"a","Kind":9}}`))
	f.Add([]byte("\x01\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\xff\xff\xff\xff{}"))
	f.Add([]byte("\x00\x00\x00\x00\x10" + `{"pid":-1,"x":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		from, to, err := socketPair()
		require.NoError(t, err)
		written := make(chan error, 1)
		go func() {
			_, err := to.Write(data)
			written <- errors.Join(err, to.Close())
		}()
		var first response
		files, err := receive(from, &first)
		assert.Empty(t, files)
		_ = from.Close()
		<-written // fails if it was not read to its end
		if err != nil {
			return
		}
		_ = first.Failure.err()
		ours, theirs, err := socketPair()
		require.NoError(t, err)
		defer ours.Close()
		conn, err := unixConn(theirs)
		require.NoError(t, err)
		defer conn.Close()
		sent := make(chan error, 1)
		go func() { sent <- send(conn, &first) }()
		var again response
		_, err = receive(ours, &again)
		require.NoError(t, err)
		require.NoError(t, <-sent)
		assert.Equal(t, first, again)
	})
}
