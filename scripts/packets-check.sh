#!/usr/bin/env bash
# Compares the packets that `convert -o x.pcapng` writes with what Wireshark's programs read: their number,
# times, sizes and bytes.
#
# usage: packets-check.sh
#
# Needs tshark and capinfos. If they are missing, they are installed with apt-get, which needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v tshark >/dev/null || ! command -v capinfos >/dev/null; then
  apt-get install --yes --no-install-recommends tshark wireshark-common >/dev/null
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The tests write generated captures there, each with a list of the expected packets.
STACKHOUND_PACKETS="$folder" cargo test --quiet -p stackhound-cli --test it packets:: >/dev/null
for expected in "$folder"/*.txt; do
  capture="${expected%.txt}.pcapng"
  count=$(capinfos -M -c -T -r "$capture" | cut -f2)
  [ "$count" = "$(wc -l <"$expected")" ] || { echo "$capture: capinfos counts $count packets"; exit 1; }
  tshark -r "$capture" -T fields -e frame.time_epoch -e frame.cap_len -e frame.len >"$folder/fields" 2>/dev/null
  # The bytes of each packet, as one line of hexadecimal digits.
  tshark -r "$capture" -T jsonraw 2>/dev/null |
    python3 -c 'import json, sys
for packet in json.load(sys.stdin): print(packet["_source"]["layers"]["frame_raw"][0])' >"$folder/bytes"
  paste "$folder/fields" "$folder/bytes" | diff "$expected" - || { echo "$capture differs"; exit 1; }
  echo "$(basename "$capture"): $count packets"
done
