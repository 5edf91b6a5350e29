#!/bin/sh
# Measures all that docs/maintainers/performance.md says and prints its tables on standard
# output; progress goes to standard error. A number is that of the repetitions.
#
#	measure.sh [-quick] [N]
#
# It takes about two minutes a repetition on a quiet machine, and eight for the
# rest, of which five are those of the case "scale". -quick does a sixteenth of the
# work, to try it out. The records are kept in $PERF_HOME/records, and
#
#	run.py --summary --report $PERF_HOME/records/plain-*.jsonl
#
# prints a table of them again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
PERF_HOME=${PERF_HOME:-${TMPDIR:-/tmp}/sandbox-perf}
export PERF_HOME
quick=
[ "${1:-}" != -quick ] || { quick=--quick; shift; }
n=${1:-5}
"$here/build.sh" >&2
records=$PERF_HOME/records
rm -rf "$records"
mkdir -p "$records"
bad=0
run() { # NAME ARGUMENT...
	name=$1; shift
	"$here/run.py" $quick --out "$records/$name.jsonl" "$@" >/dev/null || bad=1
}
show() { # HEADING NAME...
	printf '\n## %s\n\n' "$1"; shift
	for name in "$@"; do set -- "$@" "$records/$name.jsonl"; shift; done
	"$here/run.py" --summary --report "$@"
}

run plain-1 -n "$n" --only floor,js2,go --cases startup,download-stream
run plain-2 -n "$n" --only floor-json,js2,go --cases 'rtt-*'
run plain-3 -n "$n" --only floor-scan,js2,go --cases 'logs-*,memory'
run plain-4 -n "$n" --only js2,go --cases 'upload-*,download-file,list'
run tls-1 -n "$n" --tls h2 --only floor,js2,go --cases download-stream
run tls-2 -n "$n" --tls h2 --only floor-json,js2,go --cases rtt-conc
run tls-3 -n "$n" --tls h2 --only floor-scan,js2,go --cases logs-ascii
for sandboxes in 1250 2500 5000; do
	run "scale-$sandboxes" -n 1 --tls h2 --only go --cases scale --arg "sandboxes=$sandboxes"
done
run scale-h1 -n 1 --only go --cases scale
run scale-floor -n 1 --tls h2 --only floor --must floor --cases scale
show 'The figures' plain-1 plain-2 plain-3 plain-4
show 'HTTP/2' tls-1 tls-2 tls-3
show Scale scale-1250 scale-2500 scale-5000 scale-h1 scale-floor
printf '\n## Round trips\n\n'
"$PERF_HOME/bin/wan" -markdown
printf '\n## Benchmarks\n\n'
cd "$here/.."
go test -run '^$' -bench 'CommandsAtOnce|Download' -benchtime 2s ./internal/test/limits | sed 's/^/    /'
go test -run '^$' -bench 'LogDecoder|DecodePage' -benchtime 1s ./internal/wire | sed 's/^/    /'
exit $bad
