#!/usr/bin/env bash
# Records programs of every day exactly and checks that each of their returns is matched. Prints a table.
#
# usage: exact-check.sh [--long]
#   without --long: 1.5 million transitions of each program; with it: whole programs
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
transitions=1500000
if [ "${1:-}" = --long ]; then
  transitions=all
fi
STACKHOUND_EXACT_TRANSITIONS=$transitions \
  cargo test --locked --quiet -p stackhound-record-ptrace --test recorder tools -- --nocapture
