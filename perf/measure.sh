#!/bin/sh
# Measures all that docs/performance.md says and prints its tables on standard
# output; progress goes to standard error. A number is that of the repetitions.
#
#	measure.sh [-quick] [N]
#
# It takes about three minutes a repetition, and ten for the rest. -quick does a
# sixteenth of the work, to try it out. The records are kept in $PERF_HOME/records.
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

run plain -n "$n" --only floor,floor-json,floor-scan,js2,go --cases '*,!scale'
run tls -n "$n" --tls h2 --only floor,floor-json,floor-scan,js2,go --cases logs-ascii,download-stream,rtt-conc
for sandboxes in 1250 2500 5000; do
	run "scale-$sandboxes" -n 1 --tls h2 --only go --cases scale --arg "sandboxes=$sandboxes"
done
run scale-h1 -n 1 --only go --cases scale
run scale-floor -n 1 --tls h2 --only floor --must floor --cases scale
show 'The figures' plain
show 'HTTP/2' tls
show Scale scale-1250 scale-2500 scale-5000 scale-h1 scale-floor
printf '\n## Round trips\n\n'
"$PERF_HOME/bin/wan" -markdown
printf '\n## Benchmarks\n\n'
cd "$here/.."
go test -run '^$' -bench 'CommandsAtOnce|Download' -benchtime 2s . | sed 's/^/    /'
go test -run '^$' -bench 'LogDecoder|DecodePage' -benchtime 1s ./internal/wire | sed 's/^/    /'
exit $bad
