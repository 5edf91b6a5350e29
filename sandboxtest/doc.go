// Package sandboxtest is to the Vercel Sandbox API what net/http/httptest is
// to HTTP: a real server, in this process or, with cmd/sandbox-emulator,
// beside any other, that clients in any language can't tell from the service
// by what it does.
//
// It runs real processes on real files. Output is streamed as it is written,
// signals are delivered, timeouts kill, stopping a session ends every process
// of it; persistent sandboxes come back from the snapshot of their last stop,
// and snapshots, forks and rollbacks have the files that they should have;
// drives outlive sandboxes. All operations of versions 2 and later of the API
// are there, with its statuses and error codes, its limits, its filters, orders
// and cursors. What of this is known from where is listed in docs/platform.md.
//
//	func TestBuild(t *testing.T) {
//		srv := sandboxtest.New(t, nil)
//		sb, err := srv.Client().Create(t.Context(), nil)
//		...
//	}
//
// # Modes
//
// In [Namespace] mode (Linux, as root or where unprivileged user namespaces
// are allowed) each sandbox has a root of its own over the host's: its working
// directory (/vercel, or /vercel/sandbox with a runtime) is there, the host's
// programs are there, and nothing that a command writes reaches the host's
// files. Processes and the network are its own too. Snapshots are copy-on-write
// layers, which cost the same whatever they hold; a sandbox may be stopped and
// resumed any number of times, for a chain of more than a hundred layers is
// made one by the resume that finds it.
//
// In [Folder] mode (everywhere) commands are processes of the host that work
// in a folder. The sandbox's own directories are translated in the working
// directory, the arguments and the environment of a command, not in what
// programs read and write; sudo and users are those of the host; the network
// is the host's, so that two sandboxes can't listen on the same port; and
// snapshots are copies. [Server.Mode] says which mode is in use, and
// Options.Mode insists on one.
//
// [Server.Enforces] tells what is real on the machine at hand, and
// [Server.HostAddress] how sandboxes reach what the test serves.
//
// Neither is a security boundary. Run only what you would run yourself, and
// keep the server on the loopback interface.
//
// # The firewall
//
// Network policies hold where the machine can do it ([Enforcement].Policies: as
// root on Linux), and change while commands run. TLS connections are let
// through by the name that the client asks for, and lead to the server of that
// name, whatever address the client has used; names that no domain allows do not
// resolve; everything else, plain HTTP included, is a matter of address ranges,
// of which those that are denied come first. Where a domain has rules, TLS ends
// at the firewall, with a certificate that curl, git, Node, Python and Go trust
// in the sandbox: headers are set, requests answered, or sent to a forward URL
// with a token for which [Server.Authority] has the keys, so that package proxy
// can be tried from end to end. A request that fits no rule goes out as it is.
//
// Options.Names lets servers of the test stand in for those of the internet:
//
//	srv := sandboxtest.New(t, &sandboxtest.Options{
//		Names: map[string]string{"api.example.com": apiServer.URL}, // an httptest.Server
//	})
//
// What no source tells is assumed: of domains that overlap the one with the most
// labels counts; a star in the middle of a domain is one label; a star alone is
// every name, still by TLS; address ranges are not looked into.
//
// # Images
//
// The service's images stand for the programs of this machine. Options.Images
// gives names to root file systems of the test's own:
//
//	srv := sandboxtest.New(t, &sandboxtest.Options{
//		Images: map[string]string{"team/toolchain:v1": "testdata/toolchain.tar.gz"},
//	})
//
// # Time
//
// The server has a clock of its own, which [Server.Advance] moves on: sessions
// and commands run into their timeouts and snapshots expire without waiting.
// By default the server is as fast as the machine; Options.Realistic makes it as
// slow as the service.
//
// # Failures
//
// [Server.Inject] plays what networks, gateways and rate limits do to
// requests, and [Server.Crash] lets a machine die. [Server.HandleCommand]
// lets a Go function stand in for a program that is slow, or not there.
// Options.RateLimits refuses what the service would refuse, and Options.Stdin
// and Options.CommandIDs are for a service that knows less.
//
// # What is not there
//
// Runtimes, and images that Options.Images does not name, stand for the host's
// own programs, with the user and the directories of each. Regions are all this machine, networks have nothing
// in them, drives may grow beyond their size. Plans and their quotas are
// accepted and answered, but do nothing.
package sandboxtest
