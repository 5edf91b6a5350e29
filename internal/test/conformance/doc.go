// Package conformance repeats the recordings of the official JavaScript SDK in
// testdata/conformance with this SDK, and compares the requests and results.
//
// testdata/conformance/README.md describes the format. Another process plays a scenario
// against the scripted [Server], because the code for credentials reads the environment, the
// home directory and the working directory. testdata/conformance/departures.json lists the
// intended differences with their reasons. README.md describes the files.
package conformance
