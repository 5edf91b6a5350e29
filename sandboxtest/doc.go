// Package sandboxtest is to the Vercel Sandbox API what net/http/httptest is to HTTP: a
// real server. It runs in this process or, as cmd/sandbox-emulator, in a process of its
// own. Clients in any language can't tell it from the service.
//
// It runs real processes on real files. Output is streamed as it is written, signals are
// delivered, timeouts kill, and stopping a session ends all of its processes. Persistent
// sandboxes resume from the snapshot of their last stop. Snapshots, forks and rollbacks
// have the right files, and drives outlive sandboxes. All operations of versions 2 and
// later of the API are implemented, with their statuses and error codes, limits, filters,
// orders and cursors. docs/maintainers/platform.md lists how each of these is known.
//
//	func TestBuild(t *testing.T) {
//		srv := sandboxtest.New(t, nil)
//		sb, err := srv.Client().Create(t.Context(), nil)
//		...
//	}
//
// # Modes
//
// In [Namespace] mode (Linux, as root or where unprivileged user namespaces are allowed)
// each sandbox has its own root over the host's. It contains the sandbox's working
// directory (/vercel, or /vercel/sandbox with a runtime) and the host's programs. Nothing
// that a command writes reaches the host's files. Each sandbox also has its own processes
// and network. Snapshots are copy-on-write layers, which cost the same whatever their size.
// A sandbox may be stopped and resumed any number of times: a resume merges a chain of more
// than a hundred layers into one.
//
// In [Folder] mode (everywhere) commands are processes of the host that work in a
// directory. The sandbox's own directories are translated in the working directory, the
// arguments and the environment of a command, but not in what programs read and write.
// There is no other user, and on Linux sudo fails. The network is the host's, so two
// sandboxes can't listen on the same port. Snapshots are copies. A server that is root runs
// the commands as the host's user nobody. Where it can't, it runs them as root only if
// [Options].Mode requires this mode, and does not start otherwise. [Server.Mode] returns
// the mode in use.
//
// [Server.Enforces] reports what is real on this machine, and [Server.HostAddress] how
// sandboxes reach the servers of a test.
//
// Neither mode is a security boundary. Run only what you would run yourself, and keep the
// server on the loopback interface.
//
// # The firewall
//
// Network policies are enforced where the machine supports it ([Enforcement].Policies: in
// [Namespace] mode, with /dev/net/tun), and can change while commands run. A TLS connection
// is allowed by the name that the client requests, and leads to the server of that name,
// whatever address the client used. Names that no domain allows do not resolve. Address
// ranges decide about everything else, including plain HTTP; denied ranges take precedence.
// If a domain has rules, TLS ends at the firewall, with a certificate that curl, git, Node,
// Python and Go trust in the sandbox. The rules then set headers, return a fixed response,
// or send the request to a forward URL with a token for which [Server.Authority] has the
// keys, so a test can cover package proxy from end to end. A request that matches no rule
// is sent unchanged.
//
// With [Options].Names, servers of the test replace those of the internet:
//
//	srv := sandboxtest.New(t, &sandboxtest.Options{
//		Names: map[string]string{"api.example.com": apiServer.URL}, // an httptest.Server
//	})
//
// The following rules are assumptions, because no source describes them. If domains
// overlap, the one with the most labels applies. A star within a domain matches one label.
// A star alone matches every name, but only over TLS. Connections that an address range
// allows are not inspected.
//
// # Images
//
// Sandboxes run the programs of this machine instead of those in an image of the service,
// or in an image that [Options].Images names.
//
// # Time
//
// The server has its own clock, which [Server.Advance] moves forward: sessions and commands
// reach their timeouts and snapshots expire without waiting. By default the server is as
// fast as the machine; [Options].Realistic makes it as slow as the service.
//
// # Failures
//
// [Server.Inject] simulates what networks, gateways and rate limits do to requests, and
// [Server.Crash] a machine that dies. [Server.HandleCommand] replaces a program that is
// slow or not installed by a Go function. [Options].RateLimits rejects what the service
// would reject, and [Options].CommandIDs simulates a service that does not honor such IDs.
//
// # Limitations
//
// Runtimes and images differ only in their user and directories: their programs are the
// host's. All regions are this machine, networks are empty, and drives may grow beyond
// their size. Plans and their quotas are accepted and reported, but have no effect.
package sandboxtest
