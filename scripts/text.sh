#!/usr/bin/env bash
# Inserts characters that terminals, spreadsheets and parsers interpret into names of traces and
# symbols, 5,000 times, for every verb and format. The output may differ from that with an ordinary
# letter by this character only.
#
# usage: text.sh
# Exit code: 0 all outputs are correct, 101 one is not. Ordinary tests do the same 100 times.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
STACKHOUND_MUTATIONS=5000 exec cargo test --locked --release -p stackhound-cli --test it text
