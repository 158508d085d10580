#!/usr/bin/env bash
# Drops buffers from generated traces and from those of the corpus that have stacks, and compares what is said of each
# event with what the whole trace says. Prints drops, events compared, contradictions, uncertain events, the share of
# certain stacks that stays certain, and how many of the unconfirmed stacks have the right frames.
#
# usage: loss.sh [--short]
#   without --short: each data buffer in turn and 200 random pairs, read twice and read once
#   with it:         every 16th buffer of large traces, as ordinary tests do
# Exit code: 0 nothing certain is contradicted, 101 something is.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
if [ "${1:-}" = --short ]; then
  # What the workspace's tests have built does.
  exec cargo test --locked --workspace --test loss -- --nocapture
fi
STACKHOUND_LOSS=full exec cargo test --locked --release -p stackhound --test loss -- --nocapture
