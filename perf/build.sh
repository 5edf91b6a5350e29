#!/bin/sh
# Builds the programs of the harness into $PERF_HOME/bin, installs the official
# JavaScript SDKs under $PERF_HOME and generates the upload inputs. Nothing is
# left here.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=${PERF_HOME:-${TMPDIR:-/tmp}/sandbox-perf}
mkdir -p "$home/bin" "$home/data" "$home/tmp"
cd "$here"
go build -o "$home/bin/" ./bench ./floor ./stub ./wan
GOEXPERIMENT=jsonv2 go build -o "$home/bin/floor-jsonv2" ./floor
for sdk in npm2=2.9.2 npm3=3.5.0; do
	dir=$home/${sdk%%=*}
	if [ ! -d "$dir/node_modules/@vercel/sandbox" ]; then
		mkdir -p "$dir"
		(cd "$dir" && npm init -y >/dev/null && npm install --silent --no-audit --no-fund "@vercel/sandbox@${sdk#*=}")
	fi
done
"$home/bin/stub" -gen-data "$home/data"
