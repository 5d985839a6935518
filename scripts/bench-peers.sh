#!/usr/bin/env bash
# Measures Pontoon beside other bridges, in turns in one run, and prints the table for docs/benchmarks.md.
#
#   scripts/bench-peers.sh                      installs the peers if they are not there, and measures
#   scripts/bench-peers.sh install              only installs them
#   scripts/bench-peers.sh --quick              what else is said goes to the bench (docs/benchmarks.md)
#
# The peers are pinned (here and in crates/pontoon/benches/peers) and kept in a cache outside the clone
# (PONTOON_TEST_CACHE, or ~/.cache/pontoon-test). The crate takes a quarter of an hour of a processor to build, once.
# Everything runs on loopback behind the same server and under the same load as Pontoon, and is ended by the
# bench, also on Ctrl-C. Needs cargo, python3.11 (or PYTHON) with venv, npm and node from version 20 on.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
repository=$PWD
cache=${PONTOON_TEST_CACHE:-$HOME/.cache/pontoon-test}
mcp_proxy=0.6.0

main() {
    PONTOON_INSTALLS=$repository/crates/pontoon/benches/peers ./scripts/setup-tests.sh mcpo supergateway
    install_mcp_proxy
    [ "${1:-}" != install ] || return 0
    local bench
    cargo bench --locked -p pontoon --bench calls --no-run
    # Cargo names the program that it has built. That runs in place of this shell, so a signal reaches it.
    bench=$(cargo bench --locked -p pontoon --bench calls --no-run 2>&1 | sed -nE 's/.*Executable .*\((.*)\)$/\1/p')
    exec "$bench" --bench --only peers --peers "$cache" "$@"
}

install_mcp_proxy() {
    local directory=$cache/mcp-proxy-$mcp_proxy
    if [ ! -x "$directory/bin/mcp-proxy" ]; then
        echo "mcp-proxy: building into $directory"
        # Outside of the clone, whose toolchain file and settings are not the crate's.
        (cd "$cache" && cargo install --locked --quiet mcp-proxy --version "$mcp_proxy" --root "$directory" --no-track)
    fi
    echo "mcp-proxy: ready in $directory"
    ln -sfn "mcp-proxy-$mcp_proxy" "$cache/mcp-proxy"
}

main "$@"
