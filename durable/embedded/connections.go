package embedded

import (
	"errors"
	"sync"

	temporal "go.temporal.io/server/client"
	"go.temporal.io/server/common"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/testing/testhooks"
	"google.golang.org/grpc"
)

// connections are those of Temporal's services to each other, which it does not close.
type connections struct {
	mu  sync.Mutex
	all map[*grpc.ClientConn]struct{}
}

func (c *connections) note(conn *grpc.ClientConn) *grpc.ClientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[*grpc.ClientConn]struct{}{}
	}
	c.all[conn] = struct{}{}
	return conn
}

func (c *connections) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for conn := range c.all {
		if err := conn.Close(); !errors.Is(err, grpc.ErrClientConnClosing) { //nolint:staticcheck // what Close returns
			errs = append(errs, err)
		}
	}
	c.all = nil
	return errors.Join(errs...)
}

// NewFactory is that of Temporal's FactoryProvider.
func (c *connections) NewFactory(
	rpc common.RPCFactory, monitor membership.Monitor, m metrics.Handler, dc *dynamicconfig.Collection,
	hooks testhooks.TestHooks, shards int32, logger, throttled log.Logger,
) temporal.Factory {
	return temporal.NewFactoryProvider().NewFactory(noted{rpc, c}, monitor, m, dc, hooks, shards, logger, throttled)
}

// noted notes the connections that a factory makes.
type noted struct {
	common.RPCFactory
	to *connections
}

func (n noted) CreateRemoteFrontendGRPCConnection(addr string) *grpc.ClientConn {
	return n.to.note(n.RPCFactory.CreateRemoteFrontendGRPCConnection(addr))
}

func (n noted) CreateLocalFrontendGRPCConnection() *grpc.ClientConn {
	return n.to.note(n.RPCFactory.CreateLocalFrontendGRPCConnection())
}

func (n noted) CreateHistoryGRPCConnection(addr string) *grpc.ClientConn {
	return n.to.note(n.RPCFactory.CreateHistoryGRPCConnection(addr))
}

func (n noted) CreateMatchingGRPCConnection(addr string) *grpc.ClientConn {
	return n.to.note(n.RPCFactory.CreateMatchingGRPCConnection(addr))
}
