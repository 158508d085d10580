#!/usr/bin/env bash
# Drops buffers from generated traces and from traces of the corpus with stacks, and compares the
# results for each event with those for the whole trace. Prints the numbers of drops, compared
# events, contradictions and uncertain events, the share of certain stacks that remain certain, and
# the number of unconfirmed stacks with the correct frames.
#
# Each data buffer in turn and 200 random pairs, read twice and read once. Ordinary tests drop every
# 128th buffer of large traces.
#
# Also prints, for losses at six places of each trace, the share of the answers outside of the loss
# interval that stay certain, by kind of answer. Ordinary tests do so for shorter traces.
#
# Also flips each bit of the times of 200 records, and prints how many of these are reported, and by
# how much the others moved a record. Ordinary tests do so for 4 records.
#
# usage: loss.sh
# Exit code: 0 no certain result is contradicted, 101 one is.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
STACKHOUND_LOSS=full exec cargo test --locked --release -p stackhound --test it loss -- --nocapture
