#!/usr/bin/env bash
# Writes traces of generated hosts to DIR/traces, their symbols to DIR/symbols, and their tables to DIR/lake. The first
# hosts have the same system with other events; in the traces of two of them, a library has another name or another time
# stamp. Each of the last six has a problem that `stackhound demo` generates.
#
# usage: lake-data.sh STACKHOUND HOSTS DIR
set -euo pipefail
program=$1 hosts=$2 output=$3
mkdir -p "$output/symbols"
problems=(after high-cpu slow-start hang disk-bound memory-growth)
((hosts >= 2 + ${#problems[@]})) || { echo "lake-data.sh: expected at least $((2 + ${#problems[@]})) hosts" >&2; exit 2; }

# Replaces bytes of a trace, both as hexadecimal digits.
replace() {
  perl -0777 -pi -e 'BEGIN { ($from, $to) = map { pack "H*", $_ } splice @ARGV, 0, 2 } s/\Q$from\E/$to/g' "$1" "$2" "$folder"/*.etl
}
utf16() { printf '%s' "$1" | iconv -t UTF-16LE | od -An -tx1 -v | tr -d ' \n'; }

for ((host = 1; host <= hosts; host++)); do
  mix=default problem=$((host - hosts + ${#problems[@]} - 1))
  if ((problem >= 0)); then mix=${problems[problem]}; fi
  name=$(printf 'DESKTOP-PC%05d' "$host")
  folder=$output/traces/$name
  mkdir -p "$folder"
  "$program" demo -q --out "$folder" --seed "$host" --mix "$mix" >/dev/null
  replace "$(utf16 DESKTOP-CONTOSO)" "$(utf16 "$name")"
  case $host in
  1) replace "$(utf16 mswsock.dll)" "$(utf16 mswsocx.dll)" ;;
  # The folders of the symbol store begin with the time stamp.
  2)
    stamp=$(basename "$folder"/symbols/bcrypt.dll/*)
    replace "${stamp:6:2}${stamp:4:2}${stamp:2:2}${stamp:0:2}" "ffeeddcc"
    ;;
  esac
  cp -r "$folder/symbols/." "$output/symbols"
  rm -r "$folder/symbols"
done
"$program" convert -q "$output"/traces/*/*.etl -o "$output/lake" --symbol-path "$output/symbols"
