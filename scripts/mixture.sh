#!/usr/bin/env bash
# Hunts in all traces of the corpus at once and in each of their captures alone: the answers must be the same, capture by
# capture. Prints each capture with its number of answers.
#
# usage: mixture.sh [--short]
#   without --short: all 36 traces, read twice and read once
#   with it:         those of at most 600,000 bytes, read once (tests of the program read them twice)
# Exit code: 0 all are equal, 1 some differ.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
corpus=${STACKHOUND_CORPUS:-../shared/corpus}
if [ ! -d "$corpus/etl" ]; then
  echo "the corpus is missing: $corpus"
  [ "${CI:-}" != true ]
  exit
fi
corpus=$(realpath "$corpus")
profile=release flags=(--release --bin stackhound) most=+ modes=("" --one-pass)
if [ "${1:-}" = --short ]; then
  # What the workspace's tests have built does; without examples, libraries would be built with other features.
  profile=debug flags=(--bins --examples) most=600000 modes=(--one-pass)
fi
cargo build --locked --quiet --workspace "${flags[@]}"
program=$(scripts/target-folder)/$profile/stackhound
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for trace in "$corpus"/etl/*.etl "$corpus"/etl/*.etl.zst; do
  if [ "$most" = + ] || [ "$(stat -c %s "$trace")" -le "$most" ]; then
    ln -s "$trace" "$folder"
  fi
done

# Answers as lines; 1 says that something was found.
hunt() { "$program" hunt -q --symbol-path '' --all --format ndjson "$@" || [ $? = 1 ]; }

# The files of each capture, a line each.
captures=$("$program" info --format json "$folder" | python3 -c '
import json, sys
for capture in json.load(sys.stdin)["captures"]:
    print("\t".join(capture["files"]))')

alone() {
  while IFS=$'\t' read -r -a files; do
    hunt "$@" "${files[@]}" | tee >(wc -l | sed "s|\$| answers: ${files[*]##*/}|" >&2)
  done <<<"$captures"
}

status=0
for mode in "${modes[@]}"; do
  together=$(hunt $mode "$folder" | sha256sum)
  if [ "$together" = "$(alone $mode | sha256sum)" ]; then
    echo "$(wc -l <<<"$captures") captures of $(ls "$folder" | wc -l) traces ${mode:-read twice}: equal answers"
  else
    echo "${mode:-read twice}: the answers for the folder differ from those for its captures"
    status=1
  fi
done
exit "$status"
