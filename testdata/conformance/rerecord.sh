#!/usr/bin/env bash
# Records expected/, and that of more/, anew from the official SDK, to take in its next version.
#
#   testdata/conformance/rerecord.sh [--check] [VERSION [name-part ...]]
#
# VERSION is one of the npm package @vercel/sandbox, 2.9.2 by default. With
# --check nothing is written: the recordings are compared. Needs node and npm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
check=()
if [ "${1:-}" = "--check" ]; then check=(--check); shift; fi
version=${1:-2.9.2}
shift || true

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
(cd "$dir" && npm install --silent --no-audit --no-fund --no-save "@vercel/sandbox@$version" >&2)

# The recorder looks for the scenarios beside itself.
cp "$here"/record/*.mjs "$dir"/
# The user agent names the version.
sed -i.bak "s|vercel/sandbox/2\.9\.2 (|vercel/sandbox/$version (|" "$dir"/server.mjs
for set in "$here" "$here/more"; do
  ln -sfn "$set/scenarios" "$dir/scenarios"
  ln -sfn "$set/expected" "$dir/expected"
  WIRE_NODE_MODULES="$dir/node_modules" node "$dir"/record.mjs "${check[@]+"${check[@]}"}" "$@"
done
