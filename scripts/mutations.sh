#!/usr/bin/env bash
# Truncates inputs of all formats, and flips bits in them, 5,000 times each. The program must end,
# report unreadable parts, and set its exit code with --strict.
#
# usage: mutations.sh
# Exit code: 0 it does so for all inputs, 101 it does not.
# Ordinary tests do the same with 300 of each.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
STACKHOUND_MUTATIONS=5000 exec cargo test --locked --release -p stackhound-cli --test it mutations
