#!/usr/bin/env bash
# Builds and installs the Python package as users do, into a temporary environment, and tests it
# there: its tests, including the documentation pages and the tutorial, its types, and the agreement
# of the types with the module.
#
# usage: python-check.sh [PYTEST ARGUMENTS]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
# A Jupyter kernel of the tutorial may still write there, which is not an error.
trap 'rm -rf "$folder" || true' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 MYPY_CACHE_DIR="$folder/mypy" IPYTHONDIR="$folder/ipython"

# Reuses the artifacts of the workspace, without the optimizations of a release.
CARGO_TARGET_DIR=$(scripts/target-folder)
export CARGO_TARGET_DIR MATURIN_PEP517_ARGS="--profile dev"

cargo fmt --check --manifest-path crates/python/Cargo.toml
# As `cargo clippy`, but it also compiles, so that the dependencies are built once, and not checked before.
RUSTC_WORKSPACE_WRAPPER=clippy-driver \
  cargo rustc --quiet --locked --profile dev --lib --manifest-path crates/python/Cargo.toml -- -D warnings

python3 -m venv "$folder/environment"
"$folder/environment/bin/pip" install --quiet "./crates/python[test]"
"$folder/environment/bin/pip" install --quiet ./crates/python/reven2
python=$folder/environment/bin/python
cd crates/python
# Indexes of other builds are not current.
XDG_CACHE_HOME=$folder/cache "$python" -m pytest -q -p no:cacheprovider "$@"
"$python" -m mypy --strict --exclude examples.py tests reven2
"$python" -m mypy.stubtest stackhound --allowlist tests/stubtest.txt
