// Package devserver runs Temporal's server in this process, on SQLite, for tests and
// for machines without the temporal program. Temporal supports SQLite only for
// development. Beyond one machine use a cluster: only the client's address changes.
//
// The server listens on loopback behind mutual TLS, because every user of the machine
// and every sandbox of an emulator can reach its ports. Only those who can read the key
// in its folder can use them.
package devserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/common/rpc/encryption"
	"go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/go-vercel/sandbox/durable/internal/mutual"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/internal/private"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Errors of [Start].
var (
	// ErrInUse matches when another server uses the folder.
	ErrInUse = errors.New("devserver: another server uses the folder")
	// ErrVersion matches when another version of Temporal's server made the folder.
	ErrVersion = errors.New("devserver: another version of Temporal's server made the folder")
)

// KeyFile is the file in a server's folder that holds its key and certificate. The key
// outlives restarts. A process that can read it can run commands in every session, and can
// pose as the server.
const KeyFile = "tls.pem"

const (
	namespace = "default"
	// retention is how long Temporal keeps closed workflows. It is the minimum that
	// Temporal allows.
	retention = 24 * time.Hour
	// startTries limits the attempts to use free ports: another program may take them first.
	startTries  = 3
	clusterName = "active"
	// connLifetime is the maximum age of a connection to the database. Temporal leaves
	// connections open when the server stops, and this closes them.
	connLifetime = 10 * time.Second
)

// Server is a Temporal server in this process. Close it.
type Server struct {
	temporal temporal.Server
	dir      string
	key      []byte
	addr     string
	lock     *flock.Flock
}

// Format prints the address, and not the key, for every verb.
func (s *Server) Format(f fmt.State, verb rune) {
	if s == nil {
		redact.String(f, verb, "server of Temporal <nil>")
		return
	}
	redact.String(f, verb, "server of Temporal at "+s.addr)
}

// Start starts a server that keeps its database in dir. It creates dir if necessary, for
// its owner alone, and refuses a folder of another user or one that others could write
// to. One server at a time can use a folder.
//
// The server listens on port; zero means a free one, so that clients in other processes
// need the new [Server.Environ] after each start.
func Start(ctx context.Context, dir string, port int) (_ *Server, err error) {
	if err := entry.Check(ctx, true, "devserver", ""); err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, entry.Invalid("devserver", "dir", "name a folder for the database")
	}
	if err := entry.Range("devserver", "port", port, 0, 65535); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := &Server{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if err := s.open(dir); err != nil {
		return nil, err
	}
	db, err := s.database()
	if err != nil {
		return nil, fmt.Errorf("devserver: %w", err)
	}
	if s.key, err = mutual.KeyOf(filepath.Join(s.dir, KeyFile)); err != nil {
		return nil, fmt.Errorf("devserver: %w", err)
	}
	for try := 1; ; try++ {
		err := s.start(db, port)
		if err == nil {
			return s, nil
		}
		if try == startTries || ctx.Err() != nil || !strings.Contains(err.Error(), "address already in use") {
			return nil, fmt.Errorf("devserver: %w", err)
		}
	}
}

// open locks a folder and checks which version of the server made it.
func (s *Server) open(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("devserver: %w", err)
	}
	if err := private.Dir(dir); err != nil { // the database holds every command
		return fmt.Errorf("devserver: %w", err)
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	if locked, err := lock.TryLock(); err != nil || !locked {
		return errors.Join(fmt.Errorf("%w (%s)", ErrInUse, dir), err)
	}
	s.dir, s.lock = dir, lock
	file := filepath.Join(dir, "version")
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		err = os.WriteFile(file, []byte(headers.ServerVersion+"\n"), 0o600)
		text = []byte(headers.ServerVersion)
	}
	if err != nil {
		return fmt.Errorf("devserver: %w", err)
	}
	if made := strings.TrimSpace(string(text)); made != headers.ServerVersion {
		return fmt.Errorf("%w: it has version %s, and this server version %s: delete %s, or use version %s", ErrVersion, made, headers.ServerVersion, dir, made)
	}
	return nil
}

// starts counts the databases that this process has opened.
var starts atomic.Int64

// database returns the configuration of the folder's database. It creates the database if
// necessary.
func (s *Server) database() (*config.SQL, error) {
	file := filepath.Join(s.dir, "temporal.db")
	// Temporal reuses its open connections for the same attributes, even if the file has
	// been deleted since. SQLite ignores this attribute.
	start := strconv.FormatInt(starts.Add(1), 10)
	db := &config.SQL{
		PluginName: sqliteplugin.PluginName, DatabaseName: file, MaxConnLifetime: connLifetime,
		ConnectAttributes: map[string]string{
			// Safe against a kill at any moment. A power cut may lose the last
			// transactions.
			"mode": "rwc", "journal_mode": "wal", "synchronous": "normal", "busy_timeout": "10000", "sandbox_start": start,
		},
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		return db, err
	}
	// A kill must not leave half a database: make it under another name.
	fresh := *db
	fresh.DatabaseName, fresh.ConnectAttributes = filepath.Join(s.dir, "new.db"), map[string]string{"mode": "rwc", "sandbox_start": start}
	for _, suffix := range []string{"", "-journal"} {
		if err := os.Remove(fresh.DatabaseName + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if err := sqlite.SetupSchema(&fresh); err != nil {
		return nil, fmt.Errorf("creating the tables: %w", err)
	}
	ns, err := sqlite.NewNamespaceConfig(clusterName, namespace, false, nil)
	if err != nil {
		return nil, err
	}
	ns.Detail.Config.Retention = durationpb.New(retention)
	if err := sqlite.CreateNamespaces(&fresh, ns); err != nil {
		return nil, fmt.Errorf("creating the namespace: %w", err)
	}
	return db, os.Rename(fresh.DatabaseName, file)
}

// services are the services of Temporal's server. Clients connect to the first one.
var services = []primitives.ServiceName{primitives.FrontendService, primitives.HistoryService, primitives.MatchingService, primitives.WorkerService}

// start starts Temporal's services on free ports, and the frontend on port unless that
// is zero.
func (s *Server) start(db *config.SQL, port int) error {
	const ip = mutual.IP
	toServer, err := mutual.Client(s.key)
	if err != nil {
		return err
	}
	server, err := mutual.Server(s.key)
	if err != nil {
		return err
	}
	ports, err := freePorts(ip, len(services))
	if err != nil {
		return err
	}
	if port != 0 {
		ports[0] = port
	}
	conf := &config.Config{
		Global: config.Global{Membership: config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: ip}},
		Persistence: config.Persistence{
			DefaultStore: "sqlite", VisibilityStore: "sqlite", NumHistoryShards: 1,
			DataStores: map[string]config.DataStore{"sqlite": {SQL: db}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            map[string]config.Service{},
		Archival: config.Archival{
			History: config.HistoryArchival{State: "disabled"}, Visibility: config.VisibilityArchival{State: "disabled"},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
	}
	hosts := map[primitives.ServiceName]static.Hosts{}
	for i, service := range services {
		conf.Services[string(service)] = config.Service{RPC: config.RPC{GRPCPort: ports[i], BindOnIP: ip}}
		hosts[service] = static.SingleLocalHost(net.JoinHostPort(ip, strconv.Itoa(ports[i])))
	}
	addr := net.JoinHostPort(ip, strconv.Itoa(ports[0]))
	conf.PublicClient.HostPort = addr
	conf.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
		ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: addr}},
	}
	srv, err := temporal.NewServer(
		temporal.WithConfig(conf), temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts), temporal.WithLogger(log.NewNoopLogger()), temporal.WithDynamicConfigClient(settings()),
		temporal.WithTLSConfigFactory(&encryption.FixedTLSConfigProvider{
			InternodeServerConfig: server, InternodeClientConfig: toServer, FrontendServerConfig: server, FrontendClientConfig: toServer,
		}),
	)
	if err != nil {
		return err
	}
	if err := srv.Start(); err != nil {
		return errors.Join(err, srv.Stop())
	}
	s.temporal, s.addr = srv, addr
	return nil
}

// settings returns Temporal's dynamic configuration.
func settings() dynamicconfig.StaticClient {
	dynamic := dynamicconfig.StaticClient{
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key():                 8096,
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): 100,
		// Each session that is viewed has a long poll in each process that shows it.
		dynamicconfig.MakeKey("frontend.namespaceCount"): 100_000,
		// Temporal doesn't stop the workers of these features with the server. This server
		// does not need them: they clean up after crashes of big clusters, and close
		// hundreds of child workflows.
		dynamicconfig.TaskQueueScannerEnabled.Key():       false,
		dynamicconfig.HistoryScannerEnabled.Key():         false,
		dynamicconfig.EnableParentClosePolicyWorker.Key(): false,
	}
	// By default Temporal polls the queues of the one shard at most 20 times a second,
	// so that each step of a workflow waits for 45 ms.
	for _, queue := range []string{"transfer", "timer", "visibility", "outbound"} {
		dynamic[dynamicconfig.MakeKey("history."+queue+"ProcessorMaxPollRPS")] = 2000
		dynamic[dynamicconfig.MakeKey("history."+queue+"ProcessorMaxPollHostRPS")] = 2000
	}
	return dynamic
}

// freePorts returns ports that are currently free.
func freePorts(ip string, n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		if err != nil {
			return nil, err
		}
		defer l.Close() // at the end, so that no port is returned twice
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// Address returns the host and port of the server.
func (s *Server) Address() string {
	if s == nil {
		return ""
	}
	return s.addr
}

// Environ returns the environment variables that point Temporal's clients at the
// server, as KEY=value: its own program, and programs that use its package envconfig.
func (s *Server) Environ() []string {
	if s == nil {
		return nil
	}
	key := filepath.Join(s.dir, KeyFile)
	return []string{
		"TEMPORAL_ADDRESS=" + s.addr, "TEMPORAL_NAMESPACE=" + namespace,
		"TEMPORAL_TLS_CLIENT_CERT_PATH=" + key, "TEMPORAL_TLS_CLIENT_KEY_PATH=" + key, "TEMPORAL_TLS_SERVER_CA_CERT_PATH=" + key,
	}
}

// Dial connects a client to the server. It sets HostPort and the TLS configuration. The
// caller closes the client before the server.
func (s *Server) Dial(ctx context.Context, o client.Options) (client.Client, error) {
	if err := entry.Check(ctx, s != nil && s.temporal != nil, "devserver", "the Server"); err != nil {
		return nil, err
	}
	secure, err := mutual.Client(s.key)
	if err != nil {
		return nil, err
	}
	o.HostPort, o.ConnectionOptions.TLS = s.addr, secure
	// The default of five seconds may not be enough for a server that has just started
	// on a busy machine. ctx bounds it.
	o.ConnectionOptions.GetSystemInfoTimeout = cmp.Or(o.ConnectionOptions.GetSystemInfoTimeout, time.Minute)
	return client.DialContext(ctx, o)
}

// Close stops the server and unlocks its folder. Some of Temporal's goroutines remain,
// and the database's files stay open for up to ten seconds; nothing writes to them.
func (s *Server) Close() error {
	if err := entry.Made(s != nil && s.temporal != nil, "devserver", "the Server"); err != nil {
		return err
	}
	return s.stop()
}

func (s *Server) stop() error {
	var errs []error
	if s.temporal != nil {
		errs = append(errs, s.temporal.Stop())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Unlock())
	}
	return errors.Join(errs...)
}
