#!/usr/bin/env bash
# Builds the driver for kernel stacks, and tests the image. Needs .ci/setup-windows.
#
# usage: kstack-driver.sh
#
# The compiler is that of scripts/with-windows, the linker that of the Rust toolchain of this
# machine. The results are target/windows/kstack/stackhound_kstack.sys and its PDB, or the same
# files below $STACKHOUND_WINDOWS_TARGET. The driver is not signed here, see docs/driver.md.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
exec </dev/null
msvc=x86_64-pc-windows-msvc
target=${STACKHOUND_WINDOWS_TARGET:-$root/target/windows}
mkdir -p "$target/kstack"
target=$(cd "$target" && pwd)
# cargo reads the linker flags from the configuration there.
cd "$root/crates/kstack/driver"

linker=$(rustc --print target-libdir)/../bin/rust-lld
[ -x "$linker" ] || { echo "kstack-driver: the Rust toolchain has no rust-lld" >&2; exit 1; }
export STACKHOUND_LINKER=$linker CARGO_TARGET_X86_64_PC_WINDOWS_MSVC_LINKER=$root/scripts/kstack-link
# Runs cargo with a target folder, with the flavor of the linker, which its name does not show, and
# without paths of this machine in the output.
windows() {
  # The last matching prefix applies.
  local remap="'--remap-path-prefix=$root=C:\\stackhound', '--remap-path-prefix=$1=C:\\stackhound\\target'"
  STACKHOUND_WINDOWS_TARGET=$1 "$root/scripts/with-windows" "${@:2}" --locked --release --target $msvc \
    --config "target.$msvc.rustflags=['-Clinker-flavor=lld-link', $remap]"
}

# clippy reports problems with unsafe code as errors. Warnings of this compiler are not errors.
windows "$target/kstack-build" cargo clippy
windows "$target/kstack-build" cargo build
built=$msvc/release/stackhound_kstack
cp "$target/kstack-build/$built.dll" "$target/kstack/stackhound_kstack.sys"
cp "$target/kstack-build/$built.pdb" "$target/kstack/stackhound_kstack.pdb"

# The build is reproducible.
windows "$target/kstack-again" cargo build --quiet
cmp "$target/kstack-again/$built.dll" "$target/kstack/stackhound_kstack.sys"
cmp "$target/kstack-again/$built.pdb" "$target/kstack/stackhound_kstack.pdb"

cargo clippy --locked --all-targets -- -D warnings
STACKHOUND_KSTACK_SYS=$target/kstack/stackhound_kstack.sys cargo test --locked

echo "kstack-driver: $target/kstack/stackhound_kstack.sys, $(stat -c %s "$target/kstack/stackhound_kstack.sys") bytes"
