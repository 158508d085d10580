#!/usr/bin/env bash
# Simulates sessions that run for days, and checks that memory does not grow. Prints the progress.
#
# usage: soak.sh [--long]
#   without --long: 10 million events of a machine (17 minutes of its time), and 1 million events
#                   with new stacks
#   with --long:    2,000 million (two days) and 200 million
# Exit code: 0 memory does not grow, 1 it grows.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
# Short runs reuse the artifacts of the workspace's tests, because a build would take most of the
# time.
events=10000000 stacks=1000000 profile=debug flags=()
if [ "${1:-}" = --long ]; then
  events=2000000000 stacks=200000000 profile=release flags=(--release)
fi
cargo build --locked --quiet --workspace "${flags[@]}" --example system_soak --example stacks_soak
examples=$(scripts/target-folder)/$profile/examples
if [ "${1:-}" = --long ]; then
  # An hour of a session on 64 processors. The ordinary tests simulate seconds of it.
  STACKHOUND_MEMORY_SECONDS=3600 cargo test --locked --quiet --release -p stackhound-live --test memory -- --nocapture
fi
"$examples/system_soak" "$events"
"$examples/stacks_soak" "$stacks"
