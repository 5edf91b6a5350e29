// Package box provides the machines of the emulator's sandboxes. A [Box] is the machine of
// one session: it runs real processes on a file system of its own. Its files can become a
// layer, from which other Boxes start.
//
// A [Host] works in one of two modes. In [Namespace] mode (Linux) each [Box] has its own
// root, made by overlayfs over the host's, its own processes and its own network; what it
// writes never reaches the host's files, and layers are copy-on-write. In [Folder] mode
// (everywhere) commands are host processes that work in a folder, with the names of the
// sandbox's own directories translated in the working directory, the arguments and the
// environment, and layers are copies.
//
// Each way to run sandboxes has its own package: folder, namespaces, and agent, which does
// the work of namespaces for an ordinary user. Package backend contains what they share.
// Package sudo is the sudo of sandboxes on a host that has none. The tests of these packages
// are here, except those that need unexported names.
//
// Namespace mode needs root or unprivileged user namespaces, Linux 5.12, overlayfs and
// util-linux. Without root there is one user only, who owns all files of the sandbox: sudo
// and the tools for users don't work, and renaming a directory of a lower layer fails with
// EXDEV. If /dev/net/tun can be opened, sandboxes have their own network, in which the host
// is 10.0.2.2. Otherwise they share the host's network, or have none if the network is
// denied.
//
// In folder mode commands have the rights of the host's process, or of nobody if that is
// root. A process that leaves its session is found by a variable in its environment on
// Linux, and not found elsewhere. The network can't be denied, and the output of commands
// contains the host's names of files.
//
// Neither mode is a security boundary. Namespace mode protects the host and other sandboxes
// from the mistakes of programs. A hostile program that gets root by sudo may escape, and
// folder mode does not try to stop it. Run only what you would run yourself.
package box
