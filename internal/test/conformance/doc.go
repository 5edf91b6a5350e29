// Package conformance plays the recordings of the official JavaScript SDK in
// testdata/conformance with this SDK and compares what it sends and returns.
//
// The format is described in testdata/conformance/README.md. A scenario is
// played against [Server], a scripted server, in another process, because the
// credentials code reads the environment, the home directory and the working
// directory. Intended differences are listed with their reasons in
// testdata/conformance/departures.json. README.md has a diagram of the package.
package conformance
