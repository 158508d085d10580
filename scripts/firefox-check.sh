#!/usr/bin/env bash
# Loads profiles with Mozilla's own importer: the command-line client of the Firefox Profiler.
#
# usage: firefox-check.sh FILE.json...
#
# Asserts for each file that the selected thread is the busiest one and not Idle, and that Idle uses
# no processor time. Each file must contain an idle thread.
# Needs npm. Installs the client, and the Node.js that it needs, into a temporary folder.
set -euo pipefail
folder=$(mktemp -d)
client() { HOME=$folder PATH=$folder/node_modules/.bin:$PATH profiler-cli "$@"; }
trap 'client stop --all >/dev/null 2>&1 || true; rm -rf "$folder" || true' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" \
  node@24.21.0 @firefox-devtools/profiler-cli@0.10.0 >/dev/null

for file in "$@"; do
  client load "$file" >/dev/null
  client status --json >"$folder/status.json"
  client thread list --limit 0 --json >"$folder/all.json"
  client thread list --search Idle --json >"$folder/idle.json"
  client stop >/dev/null
  "$folder/node_modules/.bin/node" - "$folder" "$file" <<'SCRIPT'
const assert = require("node:assert/strict");
const [folder, file] = process.argv.slice(2);
const [status, all, idle] = ["status", "all", "idle"].map((name) => require(`${folder}/${name}.json`));
assert.equal(status.selectedThreads.length, 1);
const selected = status.selectedThreads[0];
assert.notEqual(selected.processName, "Idle");
const busiest = Math.max(...all.threads.map((thread) => thread.cpuMs));
const used = all.threads.find((thread) => thread.threadIndex === selected.threadIndex).cpuMs;
assert.ok(used > 0 && used === busiest, `${used} ms of the selected thread, ${busiest} ms of the busiest`);
const idleThreads = idle.threads.filter((thread) => thread.pid.split(".")[0] === "0");
assert.ok(idleThreads.length > 0, "no idle thread");
for (const thread of idleThreads) assert.equal(thread.cpuMs, 0);
console.log(`firefox-check: ${file} opens on ${selected.name} of ${selected.processName}, ${used.toFixed(0)} ms; Idle: 0 ms`);
SCRIPT
done
