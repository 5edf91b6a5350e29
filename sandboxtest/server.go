package sandboxtest

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/proxy/proxytest"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// Mode is how the server runs commands.
type Mode string

const (
	// Auto is Namespace where available, else Folder, but never Folder with the
	// rights of root.
	Auto Mode = ""
	// Namespace gives each sandbox a root file system, processes and a network
	// of its own, and copy-on-write snapshots. It needs Linux, and root or
	// unprivileged user namespaces.
	Namespace Mode = "namespace"
	// Folder runs commands as processes of the host in a directory of their
	// own, and translates /vercel/sandbox and the other directories of a
	// sandbox in the working directory, the arguments and the environment.
	// Snapshots are copies. Commands of a server that is root run as the host's
	// user nobody where that is possible, and as root elsewhere.
	Folder Mode = "folder"
)

// Options are the options of a Server. The zero value is ready to use.
type Options struct {
	// Addr is the TCP address to listen on. Empty means a free port of
	// 127.0.0.1. Anyone who can reach it and has the token can run commands on
	// this machine.
	Addr string
	// Mode selects how commands are run. Empty means [Auto].
	Mode Mode
	// Dir keeps sandboxes and snapshots from one server to the next. It is
	// created when missing and locked while the server is open. Empty means
	// that nothing outlives Close.
	Dir string
	// Token is the bearer token that clients must send. Empty means one
	// generated for this server; see [Server.Credentials].
	Token string `secret:"value"`
	// ControlToken is the bearer token of the control API, which gives programs in
	// any language what Go tests do with methods of the server; see
	// [Server.ControlURL]. Empty means no control API.
	ControlToken string `secret:"value"`
	// Hosts are names, without a port, by which requests may reach the server,
	// for example the name of its container. Requests may always use localhost,
	// [HostName] and every numeric address. Requests with another name are
	// refused, because they may come from a web page.
	Hosts []string
	// Names are servers that replace others. The key is the name under which
	// sandboxes find the server. The value is either host:port or
	// http://host:port. Connections to host:port are passed unchanged. With
	// http://host:port, TLS ends at the firewall, with a certificate that
	// programs in sandboxes trust, and the server receives plain HTTP, like an
	// httptest.Server. Forward URLs of network policies find these servers, too.
	// Names requires what [Enforcement].Policies requires.
	Names map[string]string
	// Images are names of images, as in CreateOptions.Image, for example "team/tools" or
	// "team/tools:v1", that exist in addition to those of the service. No other image
	// exists. Each has the programs of this machine: if you need others, run
	// sandbox-emulator in a container that has them.
	Images []string
	// HomeFolders are folders in the home directories of the machine's users that
	// sandboxes can read in namespace mode, relative to a home, such as .nvm. Sandboxes
	// see nothing else of homes except the folders that PATH names.
	HomeFolders []string
	// Hidden are folders of this machine that sandboxes don't see in namespace mode,
	// such as one with the keys of the program that starts the server. They must
	// exist. Dir is always hidden; docs/isolation.md lists what else is.
	Hidden []string
	// RefuseUnenforced refuses network policies that have no effect on this
	// machine. Otherwise they are accepted with a warning. Set it for a program
	// that relies on a policy to isolate untrusted code. See
	// [Enforcement].Policies.
	RefuseUnenforced bool
	// Authority signs the tokens sent to forward URLs. Nil means one that is
	// created when it is first needed; see [Server.Authority].
	Authority *proxytest.Authority
	// Start is the initial time of the server's clock. The zero value means the
	// machine's clock.
	Start time.Time

	// CommandIDs simulates a service that does not honor the IDs that callers
	// choose for commands.
	CommandIDs CommandIDs

	// Realistic makes the server as slow as the service, by its clock. A stop
	// takes 1 to 2.7 seconds, during which the session is stopping. A snapshot
	// takes 3.7 seconds and another 12 for each GiB of new files. The response to
	// the stop of a persistent sandbox comes before its new snapshot is the current
	// one, and a resume waits for the previous session. Otherwise stops and
	// snapshots take as long as the work, and the response waits for their end.
	// [New] sets it if the environment variable SANDBOX_TEST_REALISTIC is 1: run a
	// whole test suite once in that way to find the tests that depend on a faster
	// service than the real one.
	Realistic bool
	// RateLimits counts requests and responds with 429 to those above the limits of the
	// service: 20 creations in three seconds, 20 deletions in one, 1000 other requests in
	// a minute. If it is false, no request is limited, and the headers report a quota
	// that never runs low.
	RateLimits bool

	// MaxUpload limits the size of the body of a file upload, compressed, in
	// bytes. Zero means 8 GiB.
	MaxUpload int64
	// BodyTimeout is how long a JSON body may take, and how long an upload, or
	// the server of a tarball source, may pause. Zero means 30 seconds.
	BodyTimeout time.Duration
	// Logger receives messages about this machine, errors of the emulator, and one warning
	// about clients that request version 1 of the API. Nil disables logging. Requests are
	// not logged; see OnRequest.
	Logger *slog.Logger
	// OnRequest, if not nil, is called at the end of each request, by its
	// goroutine.
	OnRequest func(Request)
}

// Format shows the options without the token, whatever the verb.
func (o Options) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Server is a local implementation of the Vercel Sandbox API that runs real
// processes. Use [New] or [NewServer] to create one. It is safe for concurrent
// use.
type Server struct {
	// URL is the base URL of the API, to be passed to a client unchanged, for
	// example http://127.0.0.1:38331/api.
	URL string

	opts          Options
	listener      net.Listener
	http          *http.Server
	warnOldClient sync.Once // about version 1 of the API
	oidcToken     string
	authority     func() (*proxytest.Authority, error)
	requests      requests
	faults        faults
	stubs         stubs
	rates         rateLimits
	store         *store.Store
	// hasDefaultProject is set once a client has created the default project.
	hasDefaultProject atomic.Bool
	closeOnce         sync.Once
	closeErr          error
	client            *sandbox.Client
}

// Format writes the server's address, without its token, for every verb.
func (s *Server) Format(f fmt.State, verb rune) { redact.String(f, verb, "emulator at "+s.URL) }

// New starts a server for a test, which fails if the server can't be started,
// and closes it when the test ends. opts may be nil.
func New(tb testing.TB, opts *Options) *Server {
	tb.Helper()
	o := *cmp.Or(opts, new(Options))
	if os.Getenv("SANDBOX_TEST_REALISTIC") == "1" {
		o.Realistic = true
	}
	s, err := NewServer(&o)
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	for _, line := range s.whyFolder() {
		tb.Logf("sandboxtest: %s", line)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("sandboxtest: close: %v", err)
		}
	})
	return s
}

// NewServer starts a server. The caller must close it. opts may be nil.
func NewServer(opts *Options) (*Server, error) {
	o := *cmp.Or(opts, new(Options))
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("sandboxtest: %w", err)
	}
	s := &Server{opts: o}
	var err error
	if s.oidcToken, err = newOIDCToken(o.Token, time.Now()); err != nil {
		return nil, fmt.Errorf("sandboxtest: %w", err)
	}
	s.authority = sync.OnceValues(func() (*proxytest.Authority, error) {
		if o.Authority != nil {
			return o.Authority, nil
		}
		return proxytest.NewAuthority()
	})
	s.store = store.New(store.Options{
		Mode: box.Mode(o.Mode), Dir: o.Dir, Images: o.Images, HomeFolders: o.HomeFolders, Hidden: o.Hidden, Start: o.Start,
		Realistic: o.Realistic, RefuseUnenforced: o.RefuseUnenforced, Log: o.Logger, Team: teamID,
		Firewall: firewall.Options{Names: o.Names, Tokens: s.authority},
		Stub:     s.stubs.find, Missing: func() error { return s.Enforces().Missing },
	})
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("sandboxtest: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

func (o *Options) complete() error {
	switch {
	case o.ControlToken != "" && o.ControlToken == o.Token:
		return errors.New("Options.ControlToken is the token of the API")
	case o.MaxUpload < 0:
		return errors.New("negative Options.MaxUpload")
	case o.BodyTimeout < 0:
		return errors.New("negative Options.BodyTimeout")
	}
	switch o.CommandIDs {
	case CommandIDsHonored, CommandIDsIgnored, CommandIDsRefused:
	default:
		return fmt.Errorf("unknown Options.CommandIDs %q", o.CommandIDs)
	}
	o.Addr = cmp.Or(o.Addr, "127.0.0.1:0")
	o.Token = cmp.Or(o.Token, newServerToken())
	o.MaxUpload = cmp.Or(o.MaxUpload, 8<<30)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return nil
}

func (s *Server) open() (err error) {
	restoreSignals()
	if err = s.store.Open(); err != nil {
		return err
	}
	for _, line := range s.whyFolder() {
		s.opts.Logger.Warn(line)
	}
	if s.listener, err = net.Listen("tcp", s.opts.Addr); err != nil {
		return err
	}
	if ip := s.listener.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		s.opts.Logger.Warn("other machines can reach the emulator: anyone who has its token can run commands on this one", "address", s.listener.Addr())
	}
	host, _, err := net.SplitHostPort(s.address())
	if err != nil {
		return err
	}
	if err = s.store.Load(host); err != nil {
		return err
	}
	s.URL = "http://" + s.address() + "/api"
	s.http = store.NewHTTPServer(s.serve, s.opts.Logger)
	s.http.MaxHeaderBytes = 64 << 10
	s.store.Spawn(func() { _ = s.http.Serve(s.listener) }) // ends by Close
	return s.openClient()
}

// address returns the address at which this machine reaches the listener.
func (s *Server) address() string {
	addr := s.listener.Addr().(*net.TCPAddr)
	if addr.IP.IsUnspecified() {
		return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: addr.Port}).String()
	}
	return addr.String()
}

// Mode returns how commands are run: [Namespace] or [Folder].
func (s *Server) Mode() Mode { return Mode(s.store.Host.Mode()) }

// Now returns the current time of the server's clock.
func (s *Server) Now() time.Time { return s.store.Clock.Now() }

// Advance moves the server's clock forward by d: sessions and commands reach
// their timeouts, snapshots their expiry, transitional states their end. It
// returns when all of that has happened. It does not move this machine's clock.
// Code that also checks [sandbox.Client.Age], as packages agent and pool do
// before they delete, needs an [Options.Start] that is long enough ago.
func (s *Server) Advance(d time.Duration) { s.store.Clock.Advance(d) }

// Close stops the server: it ends all processes, closes all connections, and removes its
// files and other resources from the machine. If [Options].Dir is set, running persistent
// sandboxes are first stopped, with a snapshot; the error names those whose files could not
// be saved, for example because the disk is full. Close may be called more than once.
//
// On Linux without root, servers share a helper process. It stays for up to five seconds
// after the last Close, for the next server.
func (s *Server) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Server) close() error {
	s.store.BeginClose()
	var errs []error
	if s.http != nil {
		errs = append(errs, s.http.Close())
	} else if s.listener != nil {
		errs = append(errs, s.listener.Close())
	}
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	errs = append(errs, s.store.Close())
	return errors.Join(errs...)
}

// Authority returns the authority that signs the tokens which the firewall
// sends to forward URLs: its Client provides [proxy.Handler] with the keys to
// verify them. It is [Options].Authority, or one created by the first call.
func (s *Server) Authority() (*proxytest.Authority, error) { return s.authority() }
