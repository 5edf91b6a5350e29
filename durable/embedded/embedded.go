// Package embedded runs a Temporal server in this process, on SQLite, for trying
// things out, for development, for CI, and for one small machine. Temporal calls
// SQLite fit for testing and development only; beyond one machine connect to a
// cluster: nothing but the client's address changes.
//
// The server listens on loopback, behind mutual TLS with a key that each start
// makes: every user of the machine, and every sandbox of an emulator, can reach its
// ports, and none without the key can use them.
package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
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
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/common/rpc/encryption"
	"go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/go-vercel/sandbox/durable/embedded/internal/mutual"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/internal/private"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Options configures a [Server]. The zero value keeps everything in memory.
type Options struct {
	// Dir keeps the database from one start to the next, and in tls.pem the key
	// of the server that runs. It is created when missing, and is for its owner
	// alone; one of another user, or that others could write to, is refused. It is
	// locked while the server runs. Empty means memory.
	Dir string
	// Namespace is the one that is made. Empty means "default".
	Namespace string
	// Retention is how long closed workflows are kept, at least a day. Zero means 30
	// days. It is that of the start that made Dir. Of a session that has continued as new,
	// what was before is kept for a minute. The room that they leave is used again, and
	// given back by a later start where it is much.
	Retention time.Duration
	// Port is where the server is reached. Zero means one that is free: then workers
	// in other processes have to ask for [Server.Address] after each start.
	Port int
	// Logger gets warnings and errors of the server. Nil is silent.
	Logger *slog.Logger
}

// Server is a Temporal server in this process. Close it.
type Server struct {
	temporal  temporal.Server
	file      string // of the database, empty in memory
	stop      func() // what goes on beside Temporal
	inside    connections
	lock      *flock.Flock
	addr      string
	namespace string
	key       []byte
}

// Format prints the address, and not the key, for every verb.
func (s *Server) Format(f fmt.State, verb rune) {
	if s == nil {
		redact.String(f, verb, "server of Temporal <nil>")
		return
	}
	redact.String(f, verb, "server of Temporal at "+s.addr)
}

// Errors of [Start].
var (
	// ErrInUse matches when another server has the folder.
	ErrInUse = errors.New("embedded: another server uses the folder")
	// ErrVersion matches when the folder was made by a version of the server that this
	// one does not follow on: it takes along those of its own minor version and of the
	// one before, if their tables are the same.
	ErrVersion = errors.New("embedded: the folder was made by another version of the server")
)

// Start starts a server. The caller closes it. opts may be nil.
func Start(ctx context.Context, opts *Options) (_ *Server, err error) {
	if err := entry.Check(ctx, true, "embedded", ""); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	if o.Retention == 0 {
		o.Retention = 30 * 24 * time.Hour
	}
	s := &Server{namespace: o.Namespace}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	db, err := s.database(o)
	if err != nil {
		return nil, err
	}
	if err := s.makeKey(o.Dir); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	// Ports are chosen before the server binds them, so that another program may
	// be quicker.
	for try := 1; ; try++ {
		if err = s.start(db, o); err == nil {
			break
		}
		if try == 3 || ctx.Err() != nil || !strings.Contains(err.Error(), "address already in use") {
			return nil, fmt.Errorf("embedded: %w", err)
		}
	}
	s.forgetting(o.Logger)
	return s, nil
}

// KeyFile is the name of the file in Options.Dir that has the server's key and
// certificate, for other programs of the same user:
//
//	temporal --address ADDRESS --tls-cert-path FILE --tls-key-path FILE --tls-ca-path FILE workflow list
const KeyFile = "tls.pem"

// makeKey makes the server's key, or takes that of the folder: clients in other processes
// outlive a restart.
func (s *Server) makeKey(dir string) (err error) {
	if dir == "" {
		s.key, err = mutual.NewKey()
	} else {
		s.key, err = mutual.KeyOf(filepath.Join(dir, KeyFile))
	}
	return err
}

// secure returns the configurations of the server's four services and of those
// who talk to them, which are all the same.
func (s *Server) secure() (encryption.TLSConfigProvider, error) {
	client, err := mutual.Client(s.key)
	if err != nil {
		return nil, err
	}
	server, err := mutual.Server(s.key)
	return &encryption.FixedTLSConfigProvider{
		InternodeServerConfig: server, InternodeClientConfig: client, FrontendServerConfig: server, FrontendClientConfig: client,
	}, err
}

// TLS returns the configuration for clients of a server with that key; see
// [Server.Key].
func TLS(key []byte) (*tls.Config, error) { return mutual.Client(key) }

// connLifetime is after how long a connection to the database is closed and another one
// opened: Temporal itself never closes its own, also not when its server stops.
const connLifetime = 10 * time.Second

// starts counts the databases of this process.
var starts atomic.Int64

// database opens the tables, and makes them when they are missing.
func (s *Server) database(o Options) (*config.SQL, error) {
	db := &config.SQL{PluginName: sqliteplugin.PluginName, ConnectAttributes: map[string]string{}}
	if o.Dir == "" {
		db.DatabaseName = strconv.FormatInt(time.Now().UnixNano(), 36)
		db.ConnectAttributes["mode"], db.ConnectAttributes["cache"] = "memory", "shared"
	} else {
		// The database has every command.
		if err := private.Dir(o.Dir); err != nil {
			return nil, fmt.Errorf("embedded: %w", err)
		}
		s.lock = flock.New(filepath.Join(o.Dir, "lock"))
		if locked, err := s.lock.TryLock(); err != nil || !locked {
			s.lock = nil
			return nil, errors.Join(fmt.Errorf("%w (%s)", ErrInUse, o.Dir), err)
		}
		s.file = filepath.Join(o.Dir, "temporal.db")
		db.DatabaseName, db.MaxConnLifetime = s.file, connLifetime
		db.ConnectAttributes["mode"] = "rwc"
		// Temporal keeps what it has opened for the next server with the same attributes,
		// whose folder may be another one of the same name. SQLite ignores this.
		start := strconv.FormatInt(starts.Add(1), 10)
		db.ConnectAttributes["sandbox_start"] = start
		// Safe against a kill at any moment; a power cut may lose the last
		// transactions.
		db.ConnectAttributes["journal_mode"], db.ConnectAttributes["synchronous"] = "wal", "normal"
		db.ConnectAttributes["busy_timeout"] = "10000"
		if err := checkVersion(o.Dir, s.file); err != nil {
			return nil, err
		}
		if _, err := os.Stat(db.DatabaseName); err == nil {
			if err := compact(db.DatabaseName); err != nil && o.Logger != nil { // it costs room, no more
				o.Logger.Warn("could not make the database smaller", "error", err)
			}
			return db, nil
		}
		// Written next to it and renamed, so that a kill leaves no part of it.
		fresh := *db
		fresh.DatabaseName = filepath.Join(o.Dir, "new.db")
		for _, suffix := range []string{"", "-wal", "-shm"} {
			_ = os.Remove(fresh.DatabaseName + suffix)
		}
		fresh.ConnectAttributes = map[string]string{"mode": "rwc", "sandbox_start": start}
		if err := setUp(&fresh, o); err != nil {
			return nil, err
		}
		return db, os.Rename(fresh.DatabaseName, db.DatabaseName)
	}
	// In memory it is the first connection that makes the tables.
	return db, createNamespace(db, o)
}

func setUp(db *config.SQL, o Options) error {
	if err := sqlite.SetupSchema(db); err != nil {
		return fmt.Errorf("embedded: making the tables: %w", err)
	}
	return createNamespace(db, o)
}

const clusterName = "active"

func createNamespace(db *config.SQL, o Options) error {
	ns, err := sqlite.NewNamespaceConfig(clusterName, o.Namespace, false, nil)
	if err != nil {
		return err
	}
	ns.Detail.Config.Retention = durationpb.New(o.Retention)
	if err := sqlite.CreateNamespaces(db, ns); err != nil {
		return fmt.Errorf("embedded: making the namespace: %w", err)
	}
	return nil
}

func (s *Server) start(db *config.SQL, o Options) error {
	const ip = mutual.IP
	secure, err := s.secure()
	if err != nil {
		return err
	}
	services := []primitives.ServiceName{primitives.FrontendService, primitives.HistoryService, primitives.MatchingService, primitives.WorkerService}
	ports, err := freePorts(ip, len(services))
	if err != nil {
		return err
	}
	if o.Port != 0 {
		ports[0] = o.Port // of the first, the frontend
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
		addr := net.JoinHostPort(ip, strconv.Itoa(ports[i]))
		if service == primitives.FrontendService {
			s.addr = addr
		}
		conf.Services[string(service)] = config.Service{RPC: config.RPC{GRPCPort: ports[i], BindOnIP: ip}}
		hosts[service] = static.SingleLocalHost(addr)
	}
	conf.PublicClient.HostPort = s.addr
	conf.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
		ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: s.addr}},
	}
	dynamic := dynamicconfig.StaticClient{
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key():                 8096,
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): 100,
	}
	// By default the one shard's queues are polled at most 20 times a second, so
	// that each step of a workflow waits for 45 ms.
	for _, queue := range []string{"transfer", "timer", "visibility", "outbound"} {
		dynamic[dynamicconfig.MakeKey("history."+queue+"ProcessorMaxPollRPS")] = 2000
		dynamic[dynamicconfig.MakeKey("history."+queue+"ProcessorMaxPollHostRPS")] = 2000
	}
	// Each session that is viewed has a long poll in each process that shows it.
	dynamic[dynamicconfig.MakeKey("frontend.namespaceCount")] = 100_000
	// Temporal stops none of the workers of these when it stops itself. They look for what
	// crashes of big clusters leave, and close children of workflows by the hundred.
	for _, worker := range []dynamicconfig.GlobalBoolSetting{dynamicconfig.TaskQueueScannerEnabled, dynamicconfig.HistoryScannerEnabled, dynamicconfig.EnableParentClosePolicyWorker} {
		dynamic[worker.Key()] = false
	}
	var to log.Logger = log.NewNoopLogger()
	if o.Logger != nil {
		to = logger{o.Logger}
	}
	srv, err := temporal.NewServer(
		temporal.WithConfig(conf), temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts), temporal.WithLogger(to), temporal.WithDynamicConfigClient(dynamic),
		temporal.WithTLSConfigFactory(secure), temporal.WithClientFactoryProvider(&s.inside),
	)
	if err != nil {
		return err
	}
	if err := srv.Start(); err != nil {
		return errors.Join(err, srv.Stop())
	}
	s.temporal = srv
	return nil
}

// freePorts returns ports that are free at the moment.
func freePorts(ip string, n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		if err != nil {
			return nil, err
		}
		defer l.Close() // together, so that none is chosen twice
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// Address returns where the server is reached, by those who have its key.
func (s *Server) Address() string {
	if s == nil {
		return ""
	}
	return s.addr
}

// Key returns the server's key and certificate as PEM, for clients in other
// processes; see [TLS]. Who has it can run commands in every session, and be taken
// for the server.
func (s *Server) Key() []byte {
	if s == nil {
		return nil
	}
	return s.key
}

// Dial connects a client to the server. HostPort, the TLS configuration and, when
// it is empty, Namespace are set here. The caller closes the client before the
// server.
func (s *Server) Dial(ctx context.Context, o client.Options) (client.Client, error) {
	if err := entry.Check(ctx, s != nil && s.temporal != nil, "embedded", "the Server"); err != nil {
		return nil, err
	}
	secure, err := TLS(s.key)
	if err != nil {
		return nil, err
	}
	o.HostPort, o.ConnectionOptions.TLS = s.addr, secure
	if o.Namespace == "" {
		o.Namespace = s.namespace
	}
	// The server has just started on a machine that may be busy with other
	// things: five seconds, which is the default, may not be enough. ctx bounds it.
	if o.ConnectionOptions.GetSystemInfoTimeout == 0 {
		o.ConnectionOptions.GetSystemInfoTimeout = time.Minute
	}
	return client.DialContext(ctx, o)
}

// Close stops the server and gives its folder free, with all that is known in
// temporal.db. Some of Temporal's goroutines stay, and the database's file is open for up
// to ten seconds more; nothing is written to it.
func (s *Server) Close() error {
	if err := entry.Made(s != nil && (s.temporal != nil || s.lock != nil), "embedded", "the Server"); err != nil {
		return err
	}
	var errs []error
	if s.stop != nil {
		s.stop()
	}
	if s.temporal != nil {
		errs = append(errs, s.temporal.Stop(), s.inside.close())
		if s.file != "" {
			errs = append(errs, checkpoint(s.file))
		}
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Unlock())
	}
	return errors.Join(errs...)
}
