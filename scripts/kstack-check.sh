#!/usr/bin/env bash
# Tests the driver for kernel stacks in Wine, with a fake of the kernel; see docs/windows.md. Needs
# .ci/setup-windows.
#
# usage: kstack-check.sh
#
# Uses the unchanged driver that scripts/kstack-driver.sh builds.
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
# This Wine has another kernel, so it needs its own prefix.
export WINEPREFIX=$work/wine
finish() {
  windows wineserver --kill || true
  windows timeout 20 /usr/lib/wine/wineserver64 --wait || true
  # Processes may still write there, which is not an error.
  rm -rf "$WINEPREFIX" || true
}
trap finish EXIT

step "the driver"
driver=$STACKHOUND_WINDOWS_TARGET/kstack/stackhound_kstack.sys
scripts/kstack-driver.sh

step "the program"
scripts/windows-cargo build --quiet --bin stackhound --examples
export STACKHOUND_PROGRAM=$STACKHOUND_WINDOWS_TARGET/$gnu/cross/stackhound.exe

step "a separate Wine prefix"
rm -rf "$WINEPREFIX"
windows timeout 600 /usr/lib/wine/wine64 wineboot.exe --init
# The time limit for the start of a service, in milliseconds. On a busy machine, Wine's ten seconds
# are not enough.
windows timeout 100 /usr/lib/wine/wine64 reg.exe add 'HKLM\System\CurrentControlSet\Control' /v ServicesPipeTimeout \
  /t REG_DWORD /d 300000 /f >/dev/null
windows wineserver --kill || true
windows timeout 120 /usr/lib/wine/wineserver64 --wait
system=$WINEPREFIX/drive_c/windows/system32
cp "$tools/wine/drive_c/windows/system32/bcryptprimitives.dll" "$system"

# The fake replaces Wine's library, and forwards all functions that it does not implement to a copy
# of it. Its exports are its own functions and those of the installed Wine.
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
# Modules are found by file name, so imports of ntosr.dll find Wine's library.
mv "$system/ntoskrnl.exe" "$system/ntosr.dll"
cp "$STACKHOUND_WINDOWS_TARGET/$gnu/debug/stackhound_kstack_fake.dll" "$system/ntoskrnl.exe"
cp "$driver" "$system/drivers/stackhound-kstack.sys"
mkdir "$WINEPREFIX/drive_c/stackhound-kstack"

# The features of the fake kernel are fixed when it starts, so Wine is restarted for each kernel.
export WINEDLLOVERRIDES="ntoskrnl.exe=n,b;mscoree,mshtml=;winedbg.exe=d"
for kernel in whole old; do
  step "the driver in the kernel: $kernel"
  (
    cd crates/kstack/fake
    # As in the build above.
    export STACKHOUND_FAKE_EXPORTS=$work/exports.def
    ../../../scripts/with-windows timeout 600 cargo test --quiet --locked --test driver --target $gnu -- $kernel
  )
  windows wineserver --kill || true
  windows timeout 120 /usr/lib/wine/wineserver64 --wait
done

step "done"
