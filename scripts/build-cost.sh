#!/usr/bin/env bash
# Measures the processor time of the two commands with which README.md begins, in a fresh clone of this commit and of
# another one, and the build for users of the program.
#
# usage: scripts/build-cost.sh COMMIT
#
# Both clones are built in one run, one after the other, with all packages downloaded before. Takes up to an hour. Fails
# if the commands take more than 75 % of the processor time of COMMIT together, or the first one more than 60 %; if the
# last unit of the release build takes more than 60 s; or if that program is larger than 35 MB.
set -euo pipefail
cd "$(dirname "$0")/.."
before=$(git rev-parse "${1:?usage: scripts/build-cost.sh COMMIT}^{commit}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
corpus=${STACKHOUND_CORPUS:-$(realpath -q ../shared/corpus || true)}
export STACKHOUND_CORPUS=$corpus

# The commands of the first block of README.md with `cargo`.
commands() { sed -n 's/^\$ \(cargo .*\)$/\1/p' "$1/README.md" | head -2; }

# Prints the processor time of a command in seconds.
processor_time() {
  local TIMEFORMAT='%U %S'
  { time "${@}" >"$work/log" 2>&1 || touch "$work/failed"; } 2>&1 | awk '{ printf "%.0f", $1 + $2 }'
  if [ -e "$work/failed" ]; then tail -30 "$work/log" >&2; return 1; fi
}

measure() {
  git clone --quiet . "$work/$1"
  git -C "$work/$1" checkout --quiet "$2"
  (
    cd "$work/$1"
    cargo fetch --locked --quiet
    commands . | while read -r command; do
      # shellcheck disable=SC2086
      seconds=$(processor_time $command)
      printf '%s\t%s\t%s\n' "$1" "$seconds" "$command"
    done
  ) | tee "$work/$1.times"
}

measure before "$before"
measure now "$(git rev-parse HEAD)"

share() { awk -v now="$1" -v before="$2" -v limit="$3" -v what="$4" 'BEGIN {
  share = 100 * now / before
  printf "%s: %d s of processor time, %d s before: %.0f %% (at most %d %%)\n", what, now, before, share, limit
  exit share > limit }'; }
first() { head -1 "$work/$1.times" | cut -f 2; }
both() { awk -F '\t' '{ sum += $2 } END { print sum }' "$work/$1.times"; }
status=0
share "$(both now)" "$(both before)" 75 "both commands" || status=1
share "$(first now)" "$(first before)" 60 "the first command" || status=1

cd "$work/now"
cargo build --release --locked --quiet
# Only the program's own crate is built again.
touch crates/cli/src/main.rs
seconds=$( { TIMEFORMAT=%R; time cargo build --release --locked --quiet; } 2>&1)
size=$(stat --format %s "$(scripts/target-folder)/release/stackhound")
awk -v seconds="$seconds" -v size="$size" 'BEGIN {
  printf "release: last unit %.0f s (at most 60 s), program %.1f MB (at most 35 MB)\n", seconds, size / 1e6
  exit seconds > 60 || size > 35e6 }' || status=1
exit "$status"
