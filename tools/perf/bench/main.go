// Command bench runs one case of the harness with this SDK and prints its
// figures as one line of JSON.
//
//	bench CASE [key=value]...
package main

import (
	"os"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/tools/perf/kit"
)

func main() {
	kit.Main("go", sandbox.Version(), os.Args[1:], kit.Cases{
		"startup":               startup,
		"rtt-seq":               roundTrips,
		"rtt-conc":              roundTrips,
		"rtt-observed":          observedPairs,
		"logs-ascii":            waitedLogs,
		"logs-small":            waitedLogs,
		"logs-escapes":          waitedLogs,
		"logs-perline":          waitedLogs,
		"memory":                waitedLogs,
		"logs-detached":         detachedLogs,
		"logs-slow":             slowLogs,
		"upload-big":            uploadBytes,
		"upload-incompressible": uploadBytes,
		"upload-file":           uploadFile,
		"upload-many":           uploadMany,
		"download-stream":       downloadStream,
		"download-file":         downloadFile,
		"list":                  list,
		"scale":                 scale,
	})
}
