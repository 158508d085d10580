#!/bin/sh
# Fuzzes every target of crates/fuzzing.
#
# usage: fuzz.sh [SECONDS]
#
# Runs each target for SECONDS, by default 30. With cargo-fuzz, a coverage-guided fuzzer starts from
# the seeds and from the inputs that earlier runs found in fuzz/corpus, and writes failing inputs to
# fuzz/artifacts. Any compiler works: the code under test is safe Rust, so no sanitizer is needed.
# Without cargo-fuzz, the stable replay of the same targets runs for the same time, with new random
# changes to the seeds in every round.
# Exit code: 0 no target failed, 1 a target failed.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-30}
targets="container records decompression metadata payloads pipeline etl_file image journal sysmon kstack_request kstack_answer signatures rules"

if cargo fuzz --version >/dev/null 2>&1; then
    cargo build --quiet --workspace --example write_seeds
    "$(scripts/target-folder)/debug/examples/write_seeds" fuzz/corpus
    for target in $targets; do
        log=fuzz/artifacts/$target/log
        mkdir -p "$(dirname "$log")"
        echo "fuzz.sh: $target, $seconds s, log in $log"
        if ! cargo fuzz run --sanitizer none "$target" -- -max_total_time="$seconds" -max_len=65536 -timeout=10 \
            -rss_limit_mb=2048 -print_final_stats=1 >"$log" 2>&1; then
            tail -n 40 "$log" >&2
            exit 1
        fi
        grep -E '^stat::(number_of_executed_units|peak_rss_mb)' "$log"
    done
else
    echo "fuzz.sh: cargo-fuzz is missing (cargo install cargo-fuzz); replaying mutated seeds instead" >&2
    count=$(echo "$targets" | wc -w)
    end=$(($(date +%s) + seconds * count))
    while
        PROPTEST_CASES=5000 cargo test --quiet --workspace --test replay
        [ "$(date +%s)" -lt "$end" ]
    do :; done
fi
