// Package box is the machine under the emulator: it runs real processes on a
// file system of their own, and turns that file system into layers that other
// boxes start from.
//
// A [Host] works in one of two modes. In [Namespace] mode (Linux) each [Box]
// has its own root, made by overlayfs over the host's, its own processes and
// its own network; what it writes never reaches the host's files, and layers
// are copy-on-write. In [Folder] mode (everywhere) commands are host processes
// that work in a folder, with the names of the sandbox's own directories
// translated in the working directory, the arguments and the environment, and
// layers are copies.
//
// Neither mode is a security boundary. Namespace mode keeps honest programs
// from stepping on the host and on each other; a hostile one that is given
// root by sudo may find a way out, and folder mode does not even try to stop
// it. Run only what you would run yourself.
package box
