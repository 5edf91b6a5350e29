// Package tunnel makes TCP connections to programs in a sandbox: to databases,
// debuggers and whatever else listens there, on the loopback interface alone, too,
// and on ports that are not exposed.
//
//	conn, err := tunnel.Dial(ctx, sb, 5432)
//
// A connection wakes a stopped sandbox, as [sandbox.Sandbox.Resume] does. It goes
// over a terminal of the sandbox, in which a helper passes bytes on, and which
// carries a fraction of what a transfer of files does. A [Dialer] makes many
// connections over one terminal, which take turns; on each, no more than 2 MiB are
// on their way, so that one which is not read holds up no other. For HTTP on an exposed port,
// package preview goes there directly, costs less and needs no helper.
//
// # What the sandbox needs
//
// sh and stty, and one of python3, node and bash, the first that is there. The
// platform's own images have them. A terminal has no end of input and bash can't
// shut down half a connection, so where there is only bash, less is said:
//
//   - Each connection has a terminal of its own.
//   - [Conn.CloseWrite] fails with an error that matches [errors.ErrUnsupported],
//     and nothing else changes.
//   - A connection that the server resets ends with [io.EOF].
//   - [Conn.Close] hangs up once what was written is on its way, and the server may
//     not get the last of it.
package tunnel
