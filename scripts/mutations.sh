#!/usr/bin/env bash
# Cuts inputs of all formats off, and flips bits of them: 5,000 of each. The program must end, report what it could not
# read, and say so with its exit code under --strict.
#
# usage: mutations.sh
# Exit code: 0 it does, 101 it does not. Ordinary tests do the same with 300 of each.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
STACKHOUND_MUTATIONS=5000 exec cargo test --locked --release -p stackhound-cli --test mutations
