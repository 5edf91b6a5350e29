#!/usr/bin/env bash
# Records expected/, and that of more/, anew from the official SDK, to take in its next version.
#
#   testdata/conformance/rerecord.sh [--check] [VERSION [name-part ...]]
#
# VERSION is one of the npm package @vercel/sandbox, 3.5.0 by default. With
# --check nothing is written: the recordings are compared. Needs node and npm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
check=()
if [ "${1:-}" = "--check" ]; then check=(--check); shift; fi
version=${1:-3.5.0}
shift || true

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
(cd "$dir" && npm install --silent --no-audit --no-fund --no-save "@vercel/sandbox@$version" >&2)

for suite in "$here" "$here/more"; do
  WIRE_SUITE="$suite" WIRE_NODE_MODULES="$dir/node_modules" \
    node "$here/record/record.mjs" "${check[@]+"${check[@]}"}" "$@"
done
