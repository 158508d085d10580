#!/usr/bin/env bash
# Opens an exported file in speedscope, and compares the display with the file.
#
# usage: speedscope-check.sh FILE.speedscope.json [SCREENSHOT.png]
#
# Needs node, npm and chromium. Installs speedscope into a temporary folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
# Processes may still write there, which is not an error.
trap 'rm -rf "$folder" || true' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" \
  speedscope@1.25.0 playwright-core@1.65.1 ajv@8.20.0 ajv-formats@3.0.1 >/dev/null
cp "$here/speedscope-check.mjs" "$folder/"
node "$folder/speedscope-check.mjs" "$@"
