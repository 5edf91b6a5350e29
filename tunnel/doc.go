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
// sh, stty, and python3 or node. The platform's own images have them.
package tunnel
