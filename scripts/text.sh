#!/usr/bin/env bash
# Puts characters that terminals, spreadsheets and parsers obey into names of recordings and symbols: 5,000 times, over
# every verb and form. What is printed may differ from what an ordinary letter gives by this character only.
#
# usage: text.sh
# Exit code: 0 it does, 101 it does not. Ordinary tests do the same 300 times.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
STACKHOUND_MUTATIONS=5000 exec cargo test --locked --release -p stackhound-cli --test text
