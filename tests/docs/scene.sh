# What a scene of `scenes.py` is run with: programs that pages start and that do not end by themselves go on behind the page until it
# starts the next one, and a few programs that are not to be had here are played by what stands for them. Read by bash.
#
# The scene is in a network and with processes of its own, so ports are those of the pages, and nothing is left.

shopt -s expand_aliases
trap 'echo "line $LINENO, status $?: $BASH_COMMAND" >>"$SCENE/failed"' ERR
set -o errtrace

# A bridge goes on in the background, once it listens; the one before it ends.
pontoon() {
    case "${1:-}" in
        serve | mcpo)
            if [ -n "${BRIDGE:-}" ]; then kill "$BRIDGE" && wait "$BRIDGE" || true; fi
            : >"$SCENE/bridge.log"
            command pontoon "$@" >"$SCENE/bridge.log" 2>&1 &
            BRIDGE=$!
            until grep -q 'listening on' "$SCENE/bridge.log"; do
                kill -0 "$BRIDGE" 2>/dev/null || { cat "$SCENE/bridge.log"; BRIDGE=; return 1; }
                sleep 0.05
            done
            wait_for_ready
            ;;
        *) command pontoon "$@" ;;
    esac
}

# Until the bridge has learnt its servers, for half a minute at most. Its address is in its first lines.
wait_for_ready() {
    local url tries
    url=$(grep -o 'listening on https\?://[^ /]*' "$SCENE/bridge.log" | head -1 | sed 's/.* on //; s/0\.0\.0\.0/127.0.0.1/')
    for tries in $(seq 300); do
        curl -sko /dev/null -f "$url/ready" && return
        sleep 0.1
    done
    echo "not ready after half a minute:" && cat "$SCENE/bridge.log" && return 1
}

# The repository's own programs are built already.
cargo() {
    case "$*" in
        build) ;;
        "run -- demo") echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | command pontoon demo ;;
        "run -- "*) shift 2 && pontoon "$@" ;;
        "run --release -- "*) shift 3 && pontoon "$@" ;;
        "run -p live-app") behind live-app ;;
        "install --locked --path crates/pontoon") test -f "$REPOSITORY/crates/pontoon/Cargo.toml" ;;
        *) echo "cargo $*: what stands for this?" && return 1 ;;
    esac
}

# The packages of a release put the program on the PATH, which is what tests/install/packages.py looks at.
uvx() { test "$1 $2 $3" = "--from pontoon-mcp pontoon" && shift 2 && "$@"; }
npx() { test "$1" = pontoon-mcp && shift && pontoon "$@"; }

# A user of the scene, and not of this machine.
useradd() {
    mkdir -p "$SCENE/root/etc" && cp /etc/passwd /etc/group /etc/login.defs "$SCENE/root/etc" && touch "$SCENE/root/etc/shadow" "$SCENE/root/etc/gshadow"
    command useradd --prefix "$SCENE/root" "$@"
}

# A program that goes on, with an input that stays open, until it listens on port 7400.
behind() {
    sleep 600 | "$@" >"$SCENE/behind.log" 2>&1 &
    for tries in $(seq 200); do
        (exec 3<>/dev/tcp/127.0.0.1/7400) 2>/dev/null && return
        sleep 0.05
    done
    cat "$SCENE/behind.log" && return 1
}

# The real Claude Code, with a home of its own for each block, no account and no telemetry. What it was told to add is then looked at.
claude() {
    if [ $# -eq 0 ]; then return; fi   # A session at the keyboard.
    env -i PATH="$PATH" HOME="$CLAUDE_HOME" ANTHROPIC_API_KEY=fake-key ANTHROPIC_BASE_URL=http://127.0.0.1:1 DISABLE_TELEMETRY=1 DISABLE_AUTOUPDATER=1 \
        DISABLE_ERROR_REPORTING=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 ${LIVE_APP_TOKEN:+LIVE_APP_TOKEN="$LIVE_APP_TOKEN"} \
        "$CLAUDE" "$@"
}

# A command within a container runs here: the names of containers are those of this machine.
docker() {
    test "$1 $2" = "compose exec" && grep -q "^  $3:" "$REPOSITORY/deploy/compose/compose.yaml" && shift 3 && "$@"
}

# A unit that `deploy/systemd` has, and a word that systemctl knows.
systemctl() {
    local word=$1; shift
    case $word in
        daemon-reload) ;;
        enable)
            test "$1" = --now && shift
            local unit
            for unit; do
                test -f "$REPOSITORY/deploy/systemd/${unit/@*/@}.service" || return
                if [ "$unit" != "${unit%@*}" ]; then systemctl restart "$unit"; fi
            done
            ;;
        restart)
            # A replica, at the port that its name ends with.
            local port=${1##*[!0-9]}
            test -n "$port" || return
            if [ -f "$SCENE/unit-$port" ]; then kill "$(cat "$SCENE/unit-$port")"; wait "$(cat "$SCENE/unit-$port")"; fi
            command pontoon serve --port "$port" >"$SCENE/unit-$port.log" 2>&1 &
            echo $! >"$SCENE/unit-$port"
            until command curl -sfko /dev/null "http://127.0.0.1:$port/health" || ! kill -0 $!; do sleep 0.05; done
            ;;
        reload | status) test -f "$REPOSITORY/deploy/systemd/$1.service" ;;
        *) return 1 ;;
    esac
}
