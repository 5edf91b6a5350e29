// Package backend contains what all ways to run sandboxes share: the interfaces [Backend]
// and [Machine], which each way implements, the descriptions of sandboxes and commands, and
// helpers for files, processes and threads. The tests of package box test it in each mode;
// only the tests of copies, archives and threads are here.
package backend
