#!/usr/bin/env bash
# Installs what the interop and conformance tests need: SDKs of other languages, Node 22, real servers,
# Claude Code, and code of Open WebUI.
#
#   scripts/setup-tests.sh                 everything
#   scripts/setup-tests.sh ts-v1 node22    only these
#
# Each directory of tests/interop/installs pins one install, transitive versions included. It goes to
# ${PONTOON_TEST_CACHE:-~/.cache/pontoon-test}/NAME-KEY, where KEY changes with the pins, and NAME
# links to it. A finished install is never touched again, so a second run only looks at stamps.
# Needs python3.11 (or PYTHON) with venv, and npm.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# scripts/bench-peers.sh has a directory of its own.
installs=${PONTOON_INSTALLS:-$repository/tests/interop/installs}
cache=${PONTOON_TEST_CACHE:-$HOME/.cache/pontoon-test}
python=${PYTHON:-python3.11}

main() {
    local name pins key directory
    if [ $# -eq 0 ]; then
        cd "$installs"
        # Older versions of Claude Code run with this Node.
        set -- node22 *
    fi
    mkdir -p "$cache"
    # Two runs at once would install into the same directory.
    if command -v flock >/dev/null; then
        exec 9>"$cache/.lock"
        flock 9
    fi
    for name; do
        pins=$(pins_of "$name")
        key=$(sha256 "$pins")
        directory=$cache/$name-$key
        if [ -e "$directory/.complete" ]; then
            echo "$name: ready in $directory"
        else
            echo "$name: installing into $directory"
            rm -rf "$directory"
            mkdir -p "$directory"
            case $pins in
                */requirements.txt) install_python "$pins" "$directory" ;;
                */package-lock.json) install_node "$pins" "$directory" ;;
                */wheel.txt) unpack_wheel "$pins" "$directory" ;;
            esac
            touch "$directory/.complete"
            echo "$name: installed"
        fi
        if [ -d "$cache/$name" ] && [ ! -L "$cache/$name" ]; then
            echo "$cache/$name is a directory of someone else's making; remove it" >&2
            return 1
        fi
        ln -sfn "$name-$key" "$cache/$name"
    done
}

# The file that pins the install NAME.
pins_of() {
    local file
    for file in "$installs/$1/requirements.txt" "$installs/$1/package-lock.json" "$installs/$1/wheel.txt"; do
        if [ -f "$file" ]; then
            echo "$file"
            return
        fi
    done
    echo "no install is called '$1'; there are: $(cd "$installs" && echo *)" >&2
    return 1
}

sha256() {
    if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -c1-12
}

install_python() {
    local pins=$1 directory=$2
    "$python" -m venv "$directory"
    # The list is complete: without --no-deps an unpinned version could slip in.
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$pins"
    "$directory/bin/python" -m pip check
}

# Of a large program only its own Python code, which tests load in parts.
unpack_wheel() {
    local pins=$1 directory=$2 wheel
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$directory" -r "$pins"
    for wheel in "$directory"/*.whl; do
        "$python" - "$wheel" "$directory" <<'END'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.endswith(".py")])
END
        rm "$wheel"
    done
}

install_node() {
    local pins=$1 directory=$2 node
    cp "$pins" "$(dirname "$pins")/package.json" "$directory/"
    # No package here needs its scripts, so none may run.
    (cd "$directory" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    # The Node install has one package per platform, of which npm took the right one.
    for node in "$directory"/node_modules/node-*-*/bin/node; do
        if [ -x "$node" ]; then
            mkdir -p "$directory/bin"
            ln -sfn "$node" "$directory/bin/node"
            echo "node $("$node" --version)"
        fi
    done
    if [ "$(basename "$(dirname "$pins")")" = claude ]; then
        link_claude "$directory"
    fi
}

# Each pinned version of Claude Code becomes bin/claude-VERSION: newer ones are a program, of which there
# is one per platform, older ones are a script for Node.
link_claude() {
    local directory=$1 node=$cache/node22/bin/node platform version program said
    case $(uname -s)-$(uname -m) in
        Linux-x86_64) platform=linux-x64 ;;
        Linux-aarch64 | Linux-arm64) platform=linux-arm64 ;;
        *) platform=$(uname -s)-$(uname -m) ;;
    esac
    mkdir -p "$directory/bin"
    for version in $(sed -nE 's/^ *"claude-([0-9.]+)(-linux-[a-z0-9]+)?":.*/\1/p' "$directory/package.json" | sort -u); do
        program=$directory/bin/claude-$version
        if [ -f "$directory/node_modules/claude-$version/cli.js" ]; then
            if [ ! -x "$node" ]; then
                echo "Claude Code $version needs Node: run scripts/setup-tests.sh node22 claude" >&2
                return 1
            fi
            printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$node" "$directory/node_modules/claude-$version/cli.js" >"$program"
            chmod 755 "$program"
        elif [ -x "$directory/node_modules/claude-$version-$platform/claude" ]; then
            ln -sfn "../node_modules/claude-$version-$platform/claude" "$program"
        else
            # npm says nothing about an optional package that it could not get.
            echo "Claude Code $version for $platform could not be had from npm, or is not made for this platform" >&2
            return 1
        fi
        # Without a home of its own it would write into the user's.
        said=$(env -i PATH="$PATH" HOME="$directory/home" "$program" --version)
        echo "$said"
    done
    rm -rf "$directory/home"
}

main "$@"
