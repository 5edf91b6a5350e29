// Package tunnel makes TCP connections to programs in a sandbox, such as databases and
// debuggers. They may listen on the loopback interface only, and on ports that are not
// exposed.
//
//	conn, err := tunnel.Dial(ctx, sb, 5432)
//
// A connection resumes a stopped sandbox, as [sandbox.Sandbox.Resume] does. It uses a
// terminal of the sandbox, in which a helper program relays the bytes. Its throughput is
// a fraction of that of a file transfer. A [Dialer] multiplexes connections over one
// terminal. At most 2 MiB per connection are in flight, so that a connection that nobody
// reads does not block others. For HTTP on an exposed port use package preview, which
// connects directly, costs less and needs no helper.
//
// # What the sandbox needs
//
// sh, stty, and python3 or node. The platform's own images have them.
package tunnel
