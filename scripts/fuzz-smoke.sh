#!/usr/bin/env bash
# Random input for each parser: SECONDS for each property, 10 if not said. Needs stable Rust only.
#
#   scripts/fuzz-smoke.sh 10          a new seed each time; it is printed
#   scripts/fuzz-smoke.sh 10 12345    the same inputs again
#
# An input that breaks a property is kept in fuzz/artifacts. For coverage-guided fuzzing use
# `cargo +nightly fuzz run lines` (or events, frames, message, peer), which runs the same properties.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --quiet --release --manifest-path fuzz/Cargo.toml --bin smoke -- "${1:-10}" "${@:2}"
