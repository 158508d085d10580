#!/usr/bin/env bash
# Builds a user's crate outside of the workspace, with and without the default features of the
# library: the example of README.md as its program, the blocks of docs/testing.md as its tests. Runs
# the tests, and the program with the trace that a test writes. A test may have at most 15 lines in
# rustfmt's format. Needs the packages that the workspace has fetched, but no network.
#
# usage: users-crate.sh [--short]
#   --short: only without the default features; those are the features of the workspace's own tests
# Exit code: 0 all tests pass, otherwise another code.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
root=$PWD lines_max=15
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Both builds, later runs and the Python package share their artifacts. No debug information, to save compile time.
CARGO_TARGET_DIR=$(scripts/target-folder)
export CARGO_TARGET_DIR CARGO_NET_OFFLINE=true CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_DEV_LTO=off

# Prints the Rust blocks of a page.
blocks() { awk '/^```rust/ { inside = 1; next } /^```/ { inside = 0 } inside' "$1"; }

cargo new --quiet --vcs none --name users-crate "$folder/crate"
cp Cargo.lock "$folder/crate"
cd "$folder/crate"
mkdir tests
blocks "$root/README.md" >src/main.rs
blocks "$root/docs/testing.md" >tests/events.rs
rustfmt --check --edition 2024 tests/events.rs
awk -v max="$lines_max" '
  /^fn / { name = $2; start = NR }
  /^}/ && name { tests++; lines = NR - start - 1; print lines " lines: " name; if (lines > max) long = 1; name = "" }
  END { if (tests < 2 || long) { print "expected at least 2 tests, of at most " max " lines each" > "/dev/stderr"; exit 1 } }
' tests/events.rs

choices=(--default-features --no-default-features)
[ "${1:-}" != --short ] || choices=(--no-default-features)
for features in "${choices[@]}"; do
  rm -f trace.etl
  cargo add --quiet --path "$root/crates/stackhound" "$features"
  cargo test --quiet --test events
  # The program prints the process and the stack of the event in the trace.
  cargo run --quiet >printed
  for line in 'Thread/Start Some("app.exe") complete' '    evil.dll+0x1234'; do
    if ! grep -qxF -- "$line" printed; then
      { printf 'expected "%s", found:\n' "$line" && cat printed; } >&2
      exit 1
    fi
  done
  echo "$features: the tests pass, and the program prints $(wc -l <printed) lines"
done
