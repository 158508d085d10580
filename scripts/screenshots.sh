#!/usr/bin/env bash
# Opens pictures in a headless browser at two widths, checks them, and writes screenshots.
#
# usage: screenshots.sh PROGRAM INDEX FOLDER [TRACE]
#
# PROGRAM is stackhound, INDEX a trace of 201 nested calls, which the example `fixture` of the crate
# calltree writes. The traces of the demo and, if given, TRACE are drawn as flame graph and icicle,
# two traces of the demo as differential flame graphs, INDEX as tree. Pictures and screenshots are
# written to FOLDER.
# Needs node, npm and chromium. Installs playwright-core into a temporary folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$1
index=$2
folder=$3
mkdir -p "$folder"
modules=$(mktemp -d)
# Processes may still write there, which is not an error.
trap 'rm -rf "$modules" || true' EXIT
npm install --silent --no-audit --no-fund --prefix "$modules" playwright-core@1.65.1 >/dev/null

"$program" demo -q --out "$folder" >/dev/null
draw() {
  "$program" profile -q "$2" -o "$folder/$1-flame.svg"
  "$program" profile -q "$2" -o "$folder/$1-icicle.svg" --icicle
}
draw demo "$folder/stackhound-demo.etl"
# With a long line in the header.
"$program" profile -q "$folder/stackhound-demo.etl" -o "$folder/filtered-flame.svg" \
  --where "process != 'a…' $(printf "and process != 'program %s… of many' " {1..5})"
for mix in before after; do
  "$program" demo -q --mix $mix --events 150000 --out "$folder/$mix" >/dev/null
done
compare() {
  "$program" diff -q "$folder/before/stackhound-demo.etl" "$folder/after/stackhound-demo.etl" \
    --symbol-path "$folder/before/symbols" "$@"
}
compare -o "$folder/diff-flame.svg"
compare -o "$folder/diff-icicle.svg" --icicle --reverse
if [ $# -gt 3 ]; then draw trace "$4"; fi
"$program" tree "$index" --ancestors 201 --at 603 -o "$folder/tree.html"
cp "$here/screenshots.mjs" "$modules/"
node "$modules/screenshots.mjs" "$folder" "$folder"/*.svg "$folder/tree.html"
