#!/usr/bin/env bash
# Builds the code for Windows on Debian, and tests it in Wine. Needs .ci/setup-windows.
#
# usage: windows-check.sh [--short]
#   --short: without the unit tests of platform-independent code, which take longest to build, and
#     without Clippy for the other Windows target, for which only the driver has code of its own
set -euo pipefail
cd "$(dirname "$0")/.."
# cargo runs compilers that would read standard input.
exec </dev/null
gnu=x86_64-pc-windows-gnu
msvc=x86_64-pc-windows-msvc
windows() { scripts/with-windows "$@"; }
# Wine's services run for some seconds longer, and keep inherited file descriptors open.
finish() {
  rm -rf "${folder:-}" || true
  windows timeout 20 /usr/lib/wine/wineserver64 --wait || windows wineserver --kill || true
}
step() { printf '\n-- %s (%s s)\n' "$*" "$SECONDS"; }

folder=$(mktemp -d)
trap finish EXIT
here=$(scripts/target-folder)/debug/stackhound

step "test programs: one with a PDB, one with memory of each kind"
target=${STACKHOUND_WINDOWS_TARGET:-target/windows}
export STACKHOUND_WINDOWS_FIXTURE=$target/fixture
mkdir -p "$STACKHOUND_WINDOWS_FIXTURE"
sources=crates/windows/tests/fixture
objects=()
for source in main.c shapes.cpp bare.c; do
  object=$STACKHOUND_WINDOWS_FIXTURE/${source%.*}.obj
  debug=(-g -gcodeview)
  [ "$source" != bare.c ] || debug=()
  clang --target=x86_64-pc-windows-msvc -O2 -ffreestanding -fno-exceptions -fno-rtti -mno-stack-arg-probe \
    "${debug[@]}" -c "$sources/$source" -o "$object"
  objects+=("$object")
done
link() { lld-link /nologo /nodefaultlib /entry:entry /incremental:no "$@"; }
link /debug /subsystem:console /out:"$STACKHOUND_WINDOWS_FIXTURE/program.exe" "${objects[@]}"
link /dll /export:entry /export:call_each /export:bare_sum \
  /out:"$STACKHOUND_WINDOWS_FIXTURE/exports.dll" "${objects[@]}"
x86_64-w64-mingw32-gcc -O1 -Wall -o "$STACKHOUND_WINDOWS_FIXTURE/memory.exe" $sources/memory.c
# Tests in Wine use this path, so it must be absolute.
STACKHOUND_WINDOWS_FIXTURE=$(cd "$STACKHOUND_WINDOWS_FIXTURE" && pwd)

# Warnings are not errors here, because this compiler is newer and has more of them. The tests below
# are built for the other Windows target.
if [ "${1:-}" != --short ]; then
  step "clippy for $msvc"
  windows cargo clippy --locked --profile cross -p stackhound-cli -p stackhound-symbols -p stackhound-windows \
    --lib --bins --test debug_help --test etw --test memory --target $msvc
fi

# Without the unit tests that compare paths with those of Linux, that remove open files, which Wine lists until they are
# closed, and that need optimized code for their stack.
step "tests in Wine"
scripts/windows-cargo test --lib --test client --test consumer --test debug_help --test krabs --test memory \
  --test predicate -- --nocapture --skip demangle:: --skip store:: --skip temporary::

if [ "${1:-}" != --short ]; then
  step "platform-independent code, in Wine"
  windows cargo test --locked --profile cross -p stackhound-etl -p stackhound-expr -p stackhound-schema \
    -p stackhound-stacks -p stackhound-system -p stackhound-trace -p stackhound-live -p stackhound-pipeline -p stackhound-hunt -p stackhound-threads \
    -p stackhound --lib --target $gnu
fi

step "fake of ETW, tested with its own consumer"
(
  cd crates/windows-fake
  ../../scripts/with-fake cargo test --locked --target $gnu
)

step "event tracing and live sessions, with the fake"
scripts/with-fake scripts/windows-cargo test --test etw --test live -- --nocapture

step "live sessions and traces have the same output"
scripts/live-check.sh --short

step "the demo in Wine is the same as on Linux"
scripts/windows-cargo build --bin stackhound --examples
# dbghelp.dll is loaded from the system folder and not imported: Windows searches imports in the
# folder of the program first.
if windows x86_64-w64-mingw32-objdump -p "$target/$gnu/cross/stackhound.exe" | grep -i 'DLL Name: dbghelp.dll'; then
  echo "windows-check: the program imports Debug Help" >&2
  exit 1
fi
windows wine "$target/$gnu/cross/stackhound.exe" demo --out "$folder/wine" --no-progress >"$folder/wine.txt"
# With an example, as in the workspace's tests: otherwise features are missing, and most crates are built again.
cargo build --quiet --locked --workspace --bin stackhound --example fixture
"$here" demo --out "$folder/here" --no-progress >"$folder/here.txt"
diff -r "$folder/here" "$folder/wine"
sed -i "s#$folder/here#DIR#g" "$folder/here.txt"
sed -i -E "s#$folder/wine.#DIR/#g" "$folder/wine.txt"
diff "$folder/here.txt" "$folder/wine.txt"
echo "equal traces and $(wc -l <"$folder/here.txt") equal lines"

step "direct and indirect system calls in Wine, evaluated by their stacks and images"
windows x86_64-w64-mingw32-gcc -O1 -fno-optimize-sibling-calls -o "$folder/stand_ins.exe" "$sources/stand_ins.c"
mkdir "$folder/stand_ins"
windows wine "$folder/stand_ins.exe" "Z:${folder//\//\\}\\stand_ins"
STACKHOUND_STAND_INS=$folder/stand_ins cargo test --locked --workspace --test images \
  stand_ins -- --nocapture

step "done"
