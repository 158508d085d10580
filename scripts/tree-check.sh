#!/usr/bin/env bash
# Opens the page of a call tree in a headless browser, and checks the result.
#
# usage: tree-check.sh PROGRAM INDEX [SCREENSHOT.png]
#
# PROGRAM is stackhound, INDEX the trace of the documented examples, which the example `fixture` of
# the crate calltree writes.
# Needs chromium.
set -euo pipefail
program=$1
index=$2
folder=$(mktemp -d)
# The browser may still write there, which is not an error.
trap 'rm -rf "$folder" || true' EXIT
browser() {
  "${CHROMIUM:-chromium}" --headless --no-sandbox --disable-gpu --user-data-dir="$folder/profile" "$@" \
    "file://$folder/tree.html" 2>/dev/null
}

"$program" tree "$index" --at 200000 --ancestors 3 --children 3 -o "$folder/tree.html"
browser --dump-dom >"$folder/dom.html"

fail() {
  echo "tree-check: $*" >&2
  exit 1
}
# Checks the number of elements in the parsed page: the active frame is in one <strong>, and omitted
# frames are counted.
is() {
  local found
  found=$({ grep -o -- "$2" "$folder/dom.html" || true; } | wc -l)
  [ "$found" -eq "$1" ] || fail "expected $1 times $2, found $found"
}
is 5 '<details'
is 5 '<summary>'
is 1 '<strong aria-current="true"><span class="stackhound-frame" [^>]*>#199862 - usbhub!UsbhDecHubBusy</span></strong>'
is 1 '<strong'
is 1 '|- \.\.\. 1 frame left out'
is 1 'stack left at #209497, back at #211888'
is 1 '<script'
# Only the script adds it.
is 1 '<input type="search"'
is 0 'src=\|href='

if [ $# -gt 2 ]; then
  browser --screenshot="$3" --window-size=1100,900 --hide-scrollbars >/dev/null
  [ -s "$3" ] || fail "no screenshot"
fi
echo "tree-check: the page is correct"
