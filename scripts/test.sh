#!/usr/bin/env bash
# Sets up what the tests need and runs all of them. Everything is pinned and kept in a cache outside
# the clone (PONTOON_TEST_CACHE, or ~/.cache/pontoon-test).
#
#   scripts/test.sh                    everything, as CI runs it
#   scripts/test.sh lint unit          only these parts, in this order
#   scripts/test.sh soak --long        ten times as many calls as CI makes (and schemas, for that part)
#   scripts/test.sh --long             everything, with these
#
# Parts: lint macos unit smoke manners stress soak schemas fuzz conformance interop office browser claude deploy mcpo install docs deny
# And one that only measures, on a machine that does nothing else, and is no part of everything: throughput
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
soak_calls=20000
schema_cases=100000
dist_targets=$(uname -m)
cache=${PONTOON_TEST_CACHE:-$HOME/.cache/pontoon-test}

main() {
    local part started parts=()
    for part; do
        case $part in
            --long) soak_calls=200000 schema_cases=1000000 dist_targets="x86_64 aarch64" ;;
            *) parts+=("$part") ;;
        esac
    done
    if [ ${#parts[@]} -eq 0 ]; then
        parts=(lint macos unit smoke manners stress soak schemas fuzz conformance interop office browser claude deploy mcpo install docs deny)
    fi
    for part in "${parts[@]}"; do
        started=$SECONDS
        echo "== $part"
        "run_$part"
        echo "== $part: ok after $((SECONDS - started)) s"
    done
}

# The programs of the parts with real peers. All of them in one go, whichever the part: what a build has besides decides which features
# libraries are built with, so another choice would build most of them again. For the same reason the tests of one crate name another.
build_swift() {
    cargo build --profile swift --locked -p pontoon -p pontoon-tests -p live-app --bins
}

run_lint() {
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
}

# Most of these tests wait for something, so there may be more at once than processors.
run_unit() {
    RUST_TEST_THREADS=${RUST_TEST_THREADS:-4} cargo test --workspace --locked
}

# What a newcomer types first: it must answer within a second of being built.
run_smoke() {
    cargo build --release --locked
    python3 tests/interop/first_try.py
}

# Mistakes that people make, and how commands behave at a terminal.
run_manners() {
    build_swift
    python3 tests/interop/mistakes.py --pontoon "$target/swift/pontoon"
    python3 tests/interop/manners.py --pontoon "$target/swift/pontoon"
}

# Many clients with the same ids, calls aborted and children killed in between.
run_stress() {
    PONTOON_STRESS_STATEFUL=100000 PONTOON_STRESS_STATELESS=2000 \
        cargo test --profile swift --locked -p pontoon-tests --test all -- stress --nocapture
}

# Calls of every kind that go wrong in every way, kill -9, a start, and collection: nothing is left.
# The part with a full disk mounts a small one, so it needs the superuser, and says so otherwise.
run_soak() {
    PONTOON_SOAK=$soak_calls \
        cargo test --profile swift --locked -p pontoon-tests --test all -- soak --nocapture
}

# Tool schemas that are broken at random: each valid afterwards, for every client, and calls what they were.
run_schemas() {
    PONTOON_SCHEMA_CASES=$schema_cases \
        cargo test --profile swift --locked -p pontoon-schema -p pontoon-tests --test properties
}

run_fuzz() {
    ./scripts/fuzz-smoke.sh 5
}

# The protocol's own conformance suite, in front of our fixture server behind the bridge.
run_conformance() {
    ./scripts/setup-tests.sh node22 conformance
    build_swift
    python3 tests/interop/conformance/all.py --pontoon "$target/swift/pontoon" \
        --fixture "$target/swift/fixture-server"
}

# Real SDK clients and real servers, a server of an SDK as an application, the sketches of applications in
# docs/live-app.md, chats in two versions of Open WebUI, tools with every fault before the SDKs and Open WebUI,
# servers with the errors that the doctor finds before the SDKs, and real servers examined by `pontoon doctor`.
run_interop() {
    ./scripts/setup-tests.sh
    build_swift
    python3 tests/interop/run.py --pontoon "$target/swift/pontoon" \
        --fixture "$target/swift/fixture-server"
    python3 tests/interop/sdk_app.py --pontoon "$target/swift/pontoon"
    install_file /usr/include/nlohmann/json.hpp nlohmann-json3-dev
    install_file /usr/bin/g++ g++
    python3 tests/interop/sketches.py --pontoon "$target/swift/pontoon"
    python3 tests/interop/open_webui_chats.py --pontoon "$target/swift/pontoon" --fixture "$target/swift/fixture-server"
    python3 tests/interop/schemas.py --pontoon "$target/swift/pontoon"
    python3 tests/interop/faults.py --pontoon "$target/swift/pontoon" --rude "$target/swift/rude-server"
    python3 tests/interop/doctor.py --pontoon "$target/swift/pontoon"
}

# The Office servers of examples/office-tools, used by two people in two chats each.
run_office() {
    ./scripts/setup-tests.sh office-excel office-powerpoint py-mcp1 py-mcp2
    build_swift
    python3 tests/interop/office.py --pontoon "$target/swift/pontoon"
}

# mcpo beside the bridge, Open WebUI's own code before documents of the bridge, prompts and resources, requests that schemathesis
# makes of a document, and the Office servers as OpenAPI servers.
run_mcpo() {
    local written
    ./scripts/setup-tests.sh mcpo node22 py-time everything memory office-excel office-powerpoint open-webui open-webui-client schemathesis
    build_swift
    # What the tests of crates/schema know of mcpo is what mcpo says.
    written=$(mktemp)
    "${PONTOON_TEST_CACHE:-$HOME/.cache/pontoon-test}/mcpo/bin/python" tests/interop/mcpo/bodies.py >"$written"
    diff "$written" crates/schema/tests/mcpo-bodies.jsonl
    rm "$written"
    python3 tests/interop/mcpo/golden.py --pontoon "$target/swift/pontoon"
    python3 tests/interop/mcpo/command_line.py --pontoon "$target/swift/pontoon"
    python3 tests/interop/mcpo/open_webui.py --pontoon "$target/swift/pontoon"
    python3 tests/interop/mcpo/besides.py --pontoon "$target/swift/pontoon"
    python3 tests/interop/mcpo/schemathesis_run.py --pontoon "$target/swift/pontoon"
    python3 tests/interop/office.py --by rest --pontoon "$target/swift/pontoon"
}

# What a release has, made with a quicker profile, installed as users install it, and used; the shells and readers that
# completions and manual pages are for; and the workflow that makes a release. For the Linux that this machine is not,
# the code is only checked, and with --long it is built and run, too.
run_install() {
    local program out=$target/dist
    ./scripts/setup-tests.sh node22 py-mcp2 actionlint
    for program in zsh fish mandoc buildah podman runc; do
        PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null || install_package "$program" || echo "skipped: $program cannot be installed here"
    done
    check_for aarch64-unknown-linux-gnu -p pontoon -p pontoon-host
    if [ "$dist_targets" != "$(uname -m)" ]; then
        for program in gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static; do
            install_package "$program"
        done
    fi
    ./scripts/dist.sh --profile swift --targets "$dist_targets" "$out"
    python3 tests/install/packages.py --dist "$out"
    # Where this fails because other words are typed or said now, that is a change of the page: `--write` renews it.
    python3 tests/install/first_minute.py --dist "$out"
    PATH="$PATH:/usr/sbin" python3 tests/install/image.py --dist "$out"
    python3 tests/install/shells.py --pontoon "$target/$(uname -m)-unknown-linux-gnu/swift/pontoon"
    "$cache/node22/bin/node" tests/install/workflows.mjs "$cache/actionlint" .github/workflows/*.yml
}

# Every block of code of README and docs, run or checked, and every command, flag, variable, metric and link in them.
run_docs() {
    ./scripts/setup-tests.sh node22 claude deploy py-time py-mcp2 ts-v1 everything office-excel office-powerpoint
    install_program nginx nginx-light PONTOON_NGINX
    install_program jq jq PONTOON_JQ
    install_program file file PONTOON_FILE
    install_program curl curl PONTOON_CURL
    install_program openssl openssl PONTOON_OPENSSL
    build_swift
    python3 tests/docs/snippets.py --pontoon "$target/swift/pontoon"
}

# Calls through mcpo and through the bridge, for docs/benchmarks.md.
run_throughput() {
    ./scripts/setup-tests.sh mcpo
    install_program wrk wrk PONTOON_WRK
    cargo build --release --locked -p pontoon -p pontoon-tests --bin pontoon --bin cheap-server
    python3 tests/interop/mcpo/throughput.py --pontoon "$target/release/pontoon" --server "$target/release/cheap-server"
}

# The browser server of examples/browser, with Debian's Chromium, in several chats; web pages that try to use the
# application of examples/live-app; web pages that try to be the application of a bridge; and the pages of the bridge.
run_browser() {
    ./scripts/setup-tests.sh node22 playwright
    install_program chromium chromium PONTOON_CHROMIUM
    build_swift
    python3 tests/interop/browser.py --pontoon "$target/swift/pontoon"
    python3 tests/interop/live_page.py --live-app "$target/swift/live-app"
    python3 tests/interop/listen_page.py --pontoon "$target/swift/pontoon"
    python3 tests/interop/docs_page.py --pontoon "$target/swift/pontoon"
}

# Functions of a program as tools of the real Claude Code CLI, four versions of it, whose model is a script
# on loopback; and tools with every fault before the oldest and the newest of them.
run_claude() {
    ./scripts/setup-tests.sh node22 claude py-mcp1
    build_swift
    python3 tests/interop/schemas.py --pontoon "$target/swift/pontoon" --clients claude
    PONTOON_CLAUDE=${PONTOON_TEST_CACHE:-$HOME/.cache/pontoon-test}/claude/bin \
        cargo test --profile swift --locked -p pontoon-tests --test all -- claude:: --nocapture
}

# What deploy/ ships: looked at point by point, real nginx before three replicas, a real collector of traces, and a real Prometheus that
# watches two bridges.
run_deploy() {
    ./scripts/setup-tests.sh deploy helm rotel
    use_helm
    use_compose
    # Debian's runs one of the two shipped files; PONTOON_NGINX may name a newer one, or several, for both.
    install_program nginx nginx-light PONTOON_NGINX
    build_swift
    python3 tests/deploy/files.py --pontoon "$target/swift/pontoon"
    python3 tests/deploy/nginx.py --pontoon "$target/swift/pontoon" \
        --fixture "$target/swift/fixture-server"
    python3 tests/deploy/rolling.py --pontoon "$target/swift/pontoon" \
        --fixture "$target/swift/fixture-server"
    python3 tests/deploy/tracing.py --pontoon "$target/swift/pontoon" \
        --fixture "$target/swift/fixture-server"
    # Debian's has promtool, too.
    install_program prometheus prometheus PONTOON_PROMETHEUS
    python3 tests/deploy/watching.py --pontoon "$target/swift/pontoon" \
        --fixture "$target/swift/fixture-server"
}

# The helm that judges the chart: the one that is here, else the one that npm has, which is for x86_64.
use_helm() {
    local helm=$cache/helm/node_modules/.bin/helm
    if [ -z "${PONTOON_HELM:-}" ] && ! command -v helm >/dev/null && "$helm" version >/dev/null 2>&1; then
        export PONTOON_HELM=$helm
    fi
}

# The docker compose that judges the compose file: the one that is here, else Debian's.
use_compose() {
    local program=$cache/compose/usr/libexec/docker/cli-plugins/docker-compose
    if [ -n "${PONTOON_COMPOSE:-}" ] || docker compose version >/dev/null 2>&1; then
        return
    fi
    if [ -x "$program" ] || ./scripts/unpack-compose.sh "$cache/compose"; then
        export PONTOON_COMPOSE=$program
    fi
}

# Installs Debian's package for a program, unless it is there or the variable names one.
install_program() {
    local program=$1 package=$2 variable=$3
    if [ -n "${!variable:-}" ] || PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null; then
        return
    fi
    install_package "$package" || { echo "$program is needed: install it, or name one in $variable" >&2; return 1; }
}

# Installs Debian's package for a file, unless it is there.
install_file() {
    local file=$1 package=$2
    [ -e "$file" ] || install_package "$package" || { echo "$file is needed: install it" >&2; return 1; }
}

# As the superuser, or as one who may be it without a word.
install_package() {
    local package=$1 as=()
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || return 1
        as=(sudo -n)
    fi
    "${as[@]}" apt-get update -qq
    # With this run level no service is started: the tests run their own, on their own ports.
    "${as[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$package" >/dev/null
}

# macOS cannot be run here, but the code for it must compile.
run_macos() {
    check_for aarch64-apple-darwin --workspace
}

# Checks these packages for a machine whose C compiler and linker may not be here.
check_for() {
    local triple=$1
    shift
    if ! command -v rustup >/dev/null || ! timeout 120 rustup target add "$triple"; then
        echo "skipped: the target $triple cannot be installed here"
        return
    fi
    env "CC_${triple//-/_}=$PWD/scripts/no-compiler.sh" "AR_${triple//-/_}=true" \
        cargo check --locked --target "$triple" "$@"
}

run_deny() {
    if ! cargo deny --version >/dev/null 2>&1; then
        echo "skipped: cargo-deny is not installed (cargo install cargo-deny --locked)"
        return
    fi
    cargo deny check licenses bans sources
}

main "$@"
