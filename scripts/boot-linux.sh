#!/usr/bin/env bash
# Boots Linux in QEMU, records all its calls, and opens the call tree of the first user process: /init, a script of
# busybox, which starts 200 programs and a known one.
#
# usage: boot-linux.sh [--prepare] [PROGRAM [JOURNAL]]
#   --prepare: only installs QEMU, and writes vmlinuz and initrd.gz
#   PROGRAM: stackhound; by default, it is built with optimization
#   JOURNAL: by default target/qemu/boot.calls
#
# Installs QEMU from bookworm-backports if it is missing, downloads the packages of Debian's cloud kernel and of busybox,
# and keeps them in target/qemu. The console of the system is written to target/qemu/console, and the closing line of the
# recording to target/qemu/closing. Ends with status 3 if QEMU cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
target=$(scripts/target-folder)
folder=$(realpath -m "$target")/qemu
prepare=
if [ "${1:-}" = --prepare ]; then prepare=1 && shift; fi
mkdir -p "$folder"

if ! command -v qemu-system-x86_64 >/dev/null; then
  echo "deb http://deb.debian.org/debian bookworm-backports main" >/etc/apt/sources.list.d/bookworm-backports.list
  if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends -t bookworm-backports qemu-system-x86; }; then
    echo "QEMU cannot be installed" >&2
    exit 3
  fi
fi
command -v cc >/dev/null || apt-get install -y -qq --no-install-recommends gcc libc6-dev
command -v cpio >/dev/null || apt-get install -y -qq --no-install-recommends cpio

if ! [ -e "$folder/vmlinuz" ]; then
  package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
  rm -rf "$folder/packages" && mkdir "$folder/packages"
  (cd "$folder/packages" && apt-get download -qq -o APT::Sandbox::User=root "$package" busybox-static)
  for file in "$folder"/packages/*.deb; do dpkg-deb -x "$file" "$folder/packages/system"; done
  cp "$folder"/packages/system/boot/vmlinuz-* "$folder/vmlinuz"
fi
root=$folder/root
rm -rf "$root" && mkdir -p "$root/bin" "$root/proc" "$root/dev"
cp "$folder"/packages/system/bin/busybox "$root/bin/busybox"
for name in sh mount true seq sort wc cat head poweroff; do ln -s busybox "$root/bin/$name"; done
cat >"$root/init" <<'INIT'
#!/bin/sh
mount -t proc proc /proc
mount -t devtmpfs dev /dev
i=0
while [ $i -lt 200 ]; do /bin/true; i=$((i + 1)); done
/bin/known
seq 1 1000 | sort -r | wc -l
head -n 4000 /proc/kallsyms
poweroff -f
INIT
# Without a library, whose functions depend on the processor.
cc -O1 -nostdlib -static -fno-pie -no-pie -fcf-protection=none -fno-stack-protector -o "$root/bin/known" \
  crates/record/qemu/tests/known.c
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip) >"$folder/initrd.gz"
[ -z "$prepare" ] || exit 0

program=${1:-$target/release/stackhound}
journal=${2:-$folder/boot.calls}
if [ $# = 0 ]; then cargo build --quiet --locked --release -p stackhound-cli; fi
"$program" record --exact --system "$folder/vmlinuz" --initrd "$folder/initrd.gz" -o "$journal" -- \
  -append "console=ttyS0 quiet panic=-1" >"$folder/console" 2> >(tee "$folder/closing" >&2)
# The first context on the first user stack of the first process.
first=$("$program" threads "$journal" --by stack --pid 1 --format json |
  python3 -c 'import json, sys
print(min(row["first"] for row in json.load(sys.stdin)["rows"] if row["kind"] == "user"))')
"$program" tree "$journal" --at "#$first" --ancestors 0 --depth 3
