#!/usr/bin/env bash
# Checks the driver for kernel stacks in Wine, with a fake of the kernel; see docs/windows.md. Needs .ci/setup-windows.
#
# usage: kstack-check.sh
#
# The driver is the one that scripts/kstack-driver.sh builds, unchanged.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
exec </dev/null
gnu=x86_64-pc-windows-gnu
export STACKHOUND_WINDOWS_TARGET=${STACKHOUND_WINDOWS_TARGET:-$root/target/windows}
tools=${STACKHOUND_WINDOWS_TOOLS:-$HOME/.cache/stackhound/windows}
windows() { scripts/with-windows "$@"; }
step() { printf '\n-- %s (%s s)\n' "$*" "$SECONDS"; }

work=$STACKHOUND_WINDOWS_TARGET/kstack-check
mkdir -p "$work"
# Its Wine has another kernel, so it has a prefix of its own.
export WINEPREFIX=$work/wine
finish() {
  windows wineserver --kill || true
  windows timeout 20 /usr/lib/wine/wineserver64 --wait || true
  # What still writes there is no reason to fail.
  rm -rf "$WINEPREFIX" || true
}
trap finish EXIT

step "the driver"
driver=$STACKHOUND_WINDOWS_TARGET/kstack/stackhound_kstack.sys
scripts/kstack-driver.sh

step "the program"
windows cargo build --quiet --locked --profile cross -p stackhound-cli --target $gnu
export STACKHOUND_PROGRAM=$STACKHOUND_WINDOWS_TARGET/$gnu/cross/stackhound.exe

step "a Wine of its own"
rm -rf "$WINEPREFIX"
windows timeout 600 /usr/lib/wine/wine64 wineboot.exe --init
# How long a service may take to start, in milliseconds: on a busy machine longer than Wine's ten seconds.
windows timeout 100 /usr/lib/wine/wine64 reg.exe add 'HKLM\System\CurrentControlSet\Control' /v ServicesPipeTimeout \
  /t REG_DWORD /d 300000 /f >/dev/null
windows wineserver --kill || true
windows timeout 120 /usr/lib/wine/wineserver64 --wait
system=$WINEPREFIX/drive_c/windows/system32
cp "$tools/wine/drive_c/windows/system32/bcryptprimitives.dll" "$system"

# The fake takes the place of Wine's own library and forwards to a copy of it what it does not do itself. Its exports are those of
# the Wine at hand, and its own.
step "the fake of the kernel"
scripts/fake-exports "$work/exports.def" "$system/ntoskrnl.exe" ntosr fake crates/kstack/fake/src/ffi/*.rs
(
  cd crates/kstack/fake
  cargo test --locked --quiet --lib
  export STACKHOUND_FAKE_EXPORTS=$work/exports.def
  ../../../scripts/with-windows cargo clippy --quiet --locked --all-targets --target $gnu
  ../../../scripts/with-windows cargo build --quiet --locked --lib --target $gnu
  ../../../scripts/with-windows cargo test --quiet --locked --no-run --test driver --target $gnu
)
# Where a module is loaded from, its name there counts: what imports ntosr.dll is to find Wine's own.
mv "$system/ntoskrnl.exe" "$system/ntosr.dll"
cp "$STACKHOUND_WINDOWS_TARGET/$gnu/debug/stackhound_kstack_fake.dll" "$system/ntoskrnl.exe"
cp "$driver" "$system/drivers/stackhound-kstack.sys"
mkdir "$WINEPREFIX/drive_c/stackhound-kstack"

# The kernel has what it has from its start, so for another there is another start of Wine.
export WINEDLLOVERRIDES="ntoskrnl.exe=n,b;mscoree,mshtml=;winedbg.exe=d"
for kernel in whole old; do
  step "the driver in a kernel that is $kernel"
  (
    cd crates/kstack/fake
    # As it was built above.
    export STACKHOUND_FAKE_EXPORTS=$work/exports.def
    ../../../scripts/with-windows timeout 600 cargo test --quiet --locked --test driver --target $gnu -- $kernel
  )
  windows wineserver --kill || true
  windows timeout 120 /usr/lib/wine/wineserver64 --wait
done

step "done"
