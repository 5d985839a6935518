# Recipes call the scripts that CI calls. `just` alone lists them.

default:
    @just --list

# Format, lints and documentation, without running a test.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Everything CI runs.
test:
    ./scripts/test.sh

# Random input for each parser, some seconds each.
fuzz seconds="10":
    ./scripts/fuzz-smoke.sh {{ seconds }}

# Speed, as ratios against floors measured in the same run.
bench:
    cargo bench -p pontoon --bench calls
    cargo bench -p pontoon-host --bench bridge

# Pontoon beside other bridges; the first time it builds and installs them.
bench-peers:
    ./scripts/bench-peers.sh

# The demo server on this terminal.
demo:
    cargo run --quiet -- demo

# Licences, advisories and sources of all dependencies.
deny:
    cargo deny check
