#!/usr/bin/env bash
# Builds the driver for kernel stacks, and tests the image. Needs .ci/setup-windows.
#
# usage: kstack-driver.sh
#
# The compiler is that of scripts/with-windows, the linker that of the machine's own Rust. What comes of it is
# target/windows/kstack/stackhound_kstack.sys and its PDB, or the same below $STACKHOUND_WINDOWS_TARGET. Signing is not done here, see
# docs/driver.md.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
exec </dev/null
msvc=x86_64-pc-windows-msvc
target=${STACKHOUND_WINDOWS_TARGET:-$root/target/windows}
mkdir -p "$target/kstack"
target=$(cd "$target" && pwd)
# cargo reads the flags of the linker from there.
cd "$root/crates/kstack/driver"

linker=$(rustc --print target-libdir)/../bin/rust-lld
[ -x "$linker" ] || { echo "kstack-driver: the Rust toolchain has no rust-lld" >&2; exit 1; }
export CARGO_TARGET_X86_64_PC_WINDOWS_MSVC_LINKER=$linker
windows() { STACKHOUND_WINDOWS_TARGET=$1 "$root/scripts/with-windows" "${@:2}"; }

# Of what is wrong with unsafe code, clippy makes errors; this compiler's warnings are none.
windows "$target/kstack-build" cargo clippy --locked --release --target $msvc
windows "$target/kstack-build" cargo build --locked --release --target $msvc
built=$msvc/release/stackhound_kstack
cp "$target/kstack-build/$built.dll" "$target/kstack/stackhound_kstack.sys"
cp "$target/kstack-build/$built.pdb" "$target/kstack/stackhound_kstack.pdb"

cargo clippy --locked --all-targets -- -D warnings
STACKHOUND_KSTACK_SYS=$target/kstack/stackhound_kstack.sys cargo test --locked

echo "kstack-driver: $target/kstack/stackhound_kstack.sys, $(stat -c %s "$target/kstack/stackhound_kstack.sys") bytes"
