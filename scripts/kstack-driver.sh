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
target=$(mkdir -p "${STACKHOUND_WINDOWS_TARGET:-$root/target/windows}" && cd "${STACKHOUND_WINDOWS_TARGET:-$root/target/windows}" && pwd)
# cargo reads the flags of the linker from there.
cd "$root/crates/kstack/driver"

linker=$(rustc --print target-libdir)/../bin/rust-lld
[ -x "$linker" ] || { echo "kstack-driver: the Rust toolchain has no rust-lld" >&2; exit 1; }
mkdir -p "$target/kstack"
build() {
  STACKHOUND_WINDOWS_TARGET=$1 CARGO_TARGET_X86_64_PC_WINDOWS_MSVC_LINKER=$linker \
    "$root/scripts/with-windows" cargo build --locked --release --target $msvc
}
build "$target/kstack-build"
built=$target/kstack-build/$msvc/release/stackhound_kstack
cp "$built.dll" "$target/kstack/stackhound_kstack.sys"
cp "$built.pdb" "$target/kstack/stackhound_kstack.pdb"

STACKHOUND_KSTACK_SYS=$target/kstack/stackhound_kstack.sys cargo test --locked
echo "kstack-driver: $target/kstack/stackhound_kstack.sys"
