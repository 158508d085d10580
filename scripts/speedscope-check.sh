#!/usr/bin/env bash
# Opens an exported file in speedscope, as people do, and compares what is shown with what is in the file.
#
#   speedscope-check.sh FILE.speedscope.json [SCREENSHOT.png]
#
# Needs node, npm and chromium. Installs speedscope into a folder that is removed again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
# What still writes there is no reason to fail.
trap 'rm -rf "$folder" || true' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" \
  speedscope@1.25.0 playwright-core@1.65.1 ajv@8.20.0 ajv-formats@3.0.1 >/dev/null
cp "$here/speedscope-check.mjs" "$folder/"
node "$folder/speedscope-check.mjs" "$@"
