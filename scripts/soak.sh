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
# In short runs most time would go into building: what the workspace's tests have built does.
events=10000000 stacks=1000000 profile=debug flags=()
if [ "${1:-}" = --long ]; then
  events=2000000000 stacks=200000000 profile=release flags=(--release)
fi
cargo build --locked --quiet --workspace "${flags[@]}" --example system_soak --example stacks_soak
examples=$(scripts/target-folder)/$profile/examples
if [ "${1:-}" = --long ]; then
  # An hour of a session on 64 processors; the ordinary tests run seconds of it.
  STACKHOUND_MEMORY_SECONDS=3600 cargo test --locked --quiet --release -p stackhound-live --test memory -- --nocapture
fi
"$examples/system_soak" "$events"
"$examples/stacks_soak" "$stacks"
