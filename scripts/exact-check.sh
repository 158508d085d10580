#!/usr/bin/env bash
# Records everyday programs exactly, and checks that all their returns are matched. Prints a table.
#
# usage: exact-check.sh [--long]
#   without --long: 1.5 million transitions of each program; with --long: complete programs
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
transitions=1500000
if [ "${1:-}" = --long ]; then
  transitions=all
fi
STACKHOUND_EXACT_TRANSITIONS=$transitions \
  cargo test --locked --quiet -p stackhound-record-ptrace --test recorder tools -- --nocapture
