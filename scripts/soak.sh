#!/usr/bin/env bash
# Lets sessions run for simulated days and checks that memory stays flat. Prints how it goes.
#
# usage: soak.sh [--long]
#   without --long: 10 million events of a machine (17 minutes of its time), 1 million events with new stacks
#   with it:        2,000 million (two days) and 200 million
# Exit code: 0 memory is flat, 1 it grows.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
events=10000000 stacks=1000000
if [ "${1:-}" = --long ]; then
  events=2000000000 stacks=200000000
fi
cargo run --release --locked --quiet -p stackhound-system --example system_soak -- "$events"
cargo run --release --locked --quiet -p stackhound-stacks --example stacks_soak -- "$stacks"
