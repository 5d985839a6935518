"""How each block of the pages is checked. A block that is named neither in a scene nor in `APART` makes the test fail.

A block is named by its page and by how its first line begins. What a scene does with it is in `scenes.py`, what the words of `APART` mean in
`apart.py`.
"""

import dataclasses

README, OPERATIONS, OPEN_WEBUI, LIVE_APP = "README.md", "docs/operations.md", "docs/open-webui.md", "docs/live-app.md"
QUICK_START, INSTALL, PACKAGES, SYSTEMD = "docs/quick-start.md", "docs/install.md", "deploy/packages/README.md", "deploy/systemd/README.md"
DOCTOR, HOST_TOOLS, WEBSOCKET = "docs/doctor.md", "docs/host-tools.md", "docs/websocket.md"
LISTED = "claude mcp list"
# What a command that fails on purpose leaves in the list of failures.
NOT_REACHED, NOTHING_THERE = "status 3:", "status 1:"


@dataclasses.dataclass(frozen=True)
class Named:
    page: str
    begins: str
    options: dict


def block(page: str, begins: str, **options) -> Named:
    return Named(page, begins, options)


# The hours, places and numbers of a worked example.
OF_ITS_DAY = (
    (r"\d{4}-\d\d-\d\d[ T][\d:.]+Z", "TIME"), (r"\b\d+ m?s\b", "TOOK"), (r"duration_ms=[\d.]+", "duration_ms=TOOK"), (r"pid=\d+", "pid=PID"),
    (r"\b[0-9a-f]{32}\b", "TRACE"), (r"10\.0\.3\.7|127\.0\.0\.1", "ADDRESS"),
)
CONFIG = 'cp "$SCENE/{n}.text" mcp-servers.json; pontoon check'

SCENES = {
    "README: two minutes": {
        "steps": [
            block(README, "cargo run --release -- serve"),
            block(README, "cargo run --release -- tools --url", shows="Hello, Ada!"),
            # At a terminal curl shows no progress.
            block(README, "$ pontoon call --url", before="""made=$(grep -ho 'files/[0-9a-f-]\\{36\\}/S' $SCENE/1.out | head -1)
                curl() { command curl -sS "${@/files\\/06e84170-ef64-4fde-b091-f8f750d88c2a\\/S/$made}"; }""", after="unset -f curl"),
            block(README, "pontoon serve -- uvx mcp-server-time", after="pontoon health --url http://127.0.0.1:8080", shows="mcp-server-time: ready"),
            block(README, '$ curl -s --json \'{"name": "Ada"}\'', before="pontoon serve"),
            block(README, "import asyncio", after="python $SCENE/{n}.text", shows="Hello, Ada!"),
            block(README, "MCPO_API_KEY=... MCPO_TRUSTED_PROXIES"),
            block(README, "claude mcp add max", after=LISTED, shows="pontoon connect ws://localhost:7400 - ✔ Connected"),
            block(LIVE_APP, "claude mcp add figma", after=LISTED, shows="✔ Connected"),
        ],
    },
    "README: servers of your own": {
        "steps": [
            block(README, "{", after=CONFIG, shows="configuration:"),
            block(README, "pontoon check"),
            block(README, "curl -s http://127.0.0.1:8080/mcp/time", shows="Asia/Tokyo"),
            block(README, "claude mcp add --transport http time http://127.0.0.1:8080/mcp/time", exact=True, after=LISTED, shows="✔ Connected"),
            block(README, '{ "mcpServers": { "time": { "type": "http"', after='claude mcp add-json time "$(jq -c .mcpServers.time "$SCENE/{n}.text")"; claude mcp list',
                  shows="✔ Connected"),
            block(WEBSOCKET, "// TypeScript SDK 1", after="""mkdir -p ts; ln -sfn $CACHE/ts-v1/node_modules ts/node_modules
                { echo 'import { Client } from "@modelcontextprotocol/sdk/client/index.js";'
                echo 'import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";'
                echo 'const client = new Client({ name: "page", version: "1" });'; cat $SCENE/{n}.text
                echo 'console.log((await client.listTools()).tools.map(it => it.name).join()); process.exit(0);'; } >ts/page.mjs; node ts/page.mjs""",
                  shows="get_current_time"),
            block(WEBSOCKET, '{ "mcpServers": { "time": { "type": "ws"', before="MCPO_API_KEYS=me=KEY pontoon serve",
                  after='claude mcp add-json time "$(jq -c .mcpServers.time "$SCENE/{n}.text")"; claude mcp list', shows="✔ Connected"),
            block(README, "claude mcp add --transport http time http://127.0.0.1:8080/mcp/time --header", before="MCPO_API_KEYS=me=KEY,bob=KEY2 pontoon serve",
                  after=LISTED, shows="✔ Connected"),
            block(OPERATIONS, "pontoon jobs --server slides", allowed=(NOTHING_THERE,)),
            block(OPERATIONS, "MCPO_ALLOWED_ORIGINS="),
            block(OPERATIONS, "for port in 8081", before="""for port in 8081 8082 8083; do
                systemctl restart pontoon@$port; until command curl -sf http://127.0.0.1:$port/ready; do sleep 0.1; done; done""", shows="ready"),
        ],
    },
    "docs/doctor.md and README: what is wrong with a server": {
        "prelude": """mkdir -p dist; ln -sfn $CACHE/everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js dist/index.js
            echo '{"type":"module"}' >package.json
            echo '{"mcpServers":{"excel":{"command":"pontoon","args":["demo"]},"slides":{"command":"pontoon","args":["demo"],"mode":"stateful"}}}' >mcp-servers.json""",
        "steps": [
            block(README, "pontoon doctor -- uvx mcp-server-time", before="export MY_TOKEN=t", allowed=(NOT_REACHED,), shows="healthy: 2 tools"),
            block(DOCTOR, "pontoon doctor -- uvx mcp-server-time", before="export TOKEN=t", allowed=(NOT_REACHED,), shows="healthy: 2 tools"),
            block(DOCTOR, "pontoon doctor --profile claude-code", allowed=(NOTHING_THERE,), shows="Claude Code"),
        ],
    },
    "docs/live-app.md and examples/live-app": {
        "steps": [
            block("examples/live-app/README.md", "export LIVE_APP_TOKEN="),
            block("examples/live-app/README.md", "claude mcp add live-app", after=LISTED, shows="✔ Connected"),
            block(LIVE_APP, "claude mcp add my-app", before="""mkdir -p $CLAUDE_HOME/.config/my-app
                echo $LIVE_APP_TOKEN >$CLAUDE_HOME/.config/my-app/token; HOME=$CLAUDE_HOME""",
                  replace=(("/opt/my-app/pontoon", "pontoon"),), after=LISTED, shows="✔ Connected"),
            block(LIVE_APP, "claude mcp add max", after=LISTED, shows="✔ Connected"),
            block(LIVE_APP, "{", exact=True, nth=0, after=CONFIG, shows="configuration:"),
            block(LIVE_APP, "{", exact=True, nth=1, before="export APP_TOKEN=t",
                  after='sed "s,/opt/my-app/pontoon,$SCENE/bin/pontoon," "$SCENE/{n}.text" >bridge.json; command pontoon check --config bridge.json', shows="configuration:"),
        ],
    },
    "docs/open-webui.md": {
        "prelude": """openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=chat.example.org -addext subjectAltName=DNS:chat.example.org \
            -keyout $SCENE/key.pem -out $SCENE/cert.pem 2>/dev/null; chmod 0644 $SCENE/key.pem""",
        "steps": [
            block(OPEN_WEBUI, "{", after='cp "$SCENE/{n}.text" mcp-servers.json'),
            block(OPEN_WEBUI, "export MCPO_LISTEN="),
            block(OPEN_WEBUI, "configuration: mcp-servers.json", after="command pontoon check", is_output=True,
                  replace_shown=(("/opt/powerpoint/bin/", "..."), ("/opt/excel/bin/", "..."))),
            block(OPEN_WEBUI, "$ pontoon health --url"),
            block(OPEN_WEBUI, "b64()"),
            block(OPEN_WEBUI, "$ ask ada chat-5"),
            block(OPEN_WEBUI, "map $http_upgrade", after="""mkdir -p $SCENE/nginx; { echo "user root; pid $SCENE/nginx/pid; error_log $SCENE/nginx/error.log; events {}
                http { access_log off; client_body_temp_path $SCENE/nginx/a; proxy_temp_path $SCENE/nginx/b; fastcgi_temp_path $SCENE/nginx/c;
                uwsgi_temp_path $SCENE/nginx/d; scgi_temp_path $SCENE/nginx/e;"
                sed "s,listen 80;,listen 80; listen 443 ssl; ssl_certificate $SCENE/cert.pem; ssl_certificate_key $SCENE/key.pem;," $SCENE/{n}.text
                echo '}'; } >$SCENE/nginx.conf
                nginx -c $SCENE/nginx.conf -e $SCENE/nginx/error.log"""),
            block(OPEN_WEBUI, "$ curl -s -o sales.pptx", before="""export CURL_CA_BUNDLE=$SCENE/cert.pem
                made=$(cat $SCENE/*.out | grep -o 'files/[0-9a-f-]\\{36\\}' | head -1)
                curl() { command curl "${@/files\\/2dddb0a9-3700-4c71-a428-07938ef32a2a/$made}"; }""", after="unset -f curl; unset CURL_CA_BUNDLE"),
            block(OPEN_WEBUI, "$ pontoon config open-webui"),
            # `head` may close before `curl` has written all.
            block(OPEN_WEBUI, "$ docker compose exec openwebui", allowed=("status 23:",)),
        ],
    },
    "docs/open-webui.md: coming from mcpo": {
        "prelude": """echo '{"mcpServers":{"time":{"command":"uvx","args":["mcp-server-time"]}}}' >config.json""",
        "steps": [block(OPEN_WEBUI, "$ pontoon mcpo")],
    },
    "deploy": {
        "prelude": """cp $SCENE/bin/pontoon pontoon; cp $REPOSITORY/deploy/systemd/*.service .
            echo '{"mcpServers":{"time":{"command":"mcp-server-time"}}}' >mcp-servers.json; export MCPO_API_KEY=a-long-enough-key
            mkdir -p $SCENE/root/usr/local/bin $SCENE/root/etc/systemd/system""",
        "steps": [
            block("deploy/nginx/tls/README.md", "openssl req", after="openssl x509 -in fullchain.pem -noout -subject", shows="CN = localhost"),
            block("deploy/systemd/README.md", "install -m 0755 pontoon", before="pontoon serve --config mcp-servers.json",
                  replace=(("/usr/local", "$SCENE/root/usr/local"), ("/etc/", "$SCENE/root/etc/")), shows="ok (pontoon"),
            block(OPERATIONS, "MCPO_TLS_CERT=", before="mkdir live; cp fullchain.pem privkey.pem live/",
                  replace=(("/etc/letsencrypt/live/tools.example.org", "$PWD/live"),)),
            block(SYSTEMD, "useradd", before="unset MCPO_TLS_CERT MCPO_TLS_KEY", replace=(("/etc/", "$SCENE/root/etc/"),), shows="ok (pontoon"),
            block(SYSTEMD, "for port in 8081", shows="ready"),
            block(OPERATIONS, "pontoon status --url", replace=(("10.0.3.11:8080", "127.0.0.1:8081"), ("10.0.3.12:8080", "127.0.0.1:8082")), shows="2 replicas"),
        ],
    },
    "docs/quick-start.md": {
        "steps": [
            block(QUICK_START, "pontoon serve"),
            block(QUICK_START, "pontoon tools --url", shows="Hello, Ada!"),
            block(QUICK_START, "pontoon call --url", after="""command pontoon call --url http://127.0.0.1:8080/mcp/demo --save make_report title=Plans 'lines=["one"]' format=md
                cat Plans.md""", shows="# Plans"),
            block(QUICK_START, "pontoon init time excel", replace=(("pontoon init -- ", "rm mcp-servers.json; pontoon init -- "),
                  ("pontoon init    ", "rm mcp-servers.json; pontoon init    ")), shows="wrote mcp-servers.json: my-server"),
            block(QUICK_START, "pontoon check", before="rm mcp-servers.json; pontoon init time excel >$SCENE/init 2>&1", shows="time: ready in"),
        ],
    },
    "docs/install.md": {
        "steps": [
            block(INSTALL, "sha256sum", before="echo 1 >pontoon.deb; echo 2 >pontoon.whl; sha256sum pontoon.deb pontoon.whl >SHA256SUMS; rm pontoon.whl", shows="pontoon.deb: OK"),
            block(INSTALL, "mkdir -p ~/.local", after=". ~/.local/share/bash-completion/completions/pontoon; complete -p pontoon", shows="_pontoon"),
        ],
    },
    # The program as pip and npm bring it is in tests/install/packages.py.
    "deploy/packages": {
        "steps": [
            block(PACKAGES, "uvx --from", after="pontoon health --url http://127.0.0.1:8080", shows="mcp-server-time: ready"),
            block(PACKAGES, "npx pontoon-mcp", after="pontoon health --url http://127.0.0.1:8080", shows="ready"),
            block(PACKAGES, "pontoon serve", shows="Hello, Ada!"),
        ],
    },
    "docs/operations.md: traces": {
        # What takes the first batch of spans, and ends; a real collector is in tests/deploy/tracing.py.
        "prelude": """printf 'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n' >taken
            python3 -c 'if True:
                import socket
                with socket.create_server(("127.0.0.1", 4318)) as listening, listening.accept()[0] as one:
                    one.settimeout(2)
                    with open("got", "wb") as got:
                        while b"deployment.environment.name" not in open("got", "rb").read():
                            got.write(one.recv(65536))
                            got.flush()
                    one.sendall(open("taken", "rb").read())' &""",
        "steps": [block(OPERATIONS, "OTEL_EXPORTER_OTLP_ENDPOINT", after="""command pontoon call --url http://127.0.0.1:8080/mcp/demo greet name=Ada
                for tries in $(seq 150); do if grep -qas deployment.environment.name got; then break; fi; sleep 0.1; done; grep -ao '^POST [^ ]*' got
                grep -ao deployment.environment.name got""", shows="Hello, Ada! POST /v1/traces deployment.environment.name")],
    },
    "docs/operations.md: who called what": {
        "prelude": """echo '{"mcpServers":{"slides":{"command":"/usr/bin/python3","args":["'$REPOSITORY'/tests/docs/slides.py"],"timeout":"1s"}}}' >mcp-servers.json
            export MCPO_LOG_DIR=$SCENE/logs MCPO_API_KEYS=webui=a-long-enough-key PONTOON_TOKEN=a-long-enough-key; pontoon serve
            for tool in open make_report; do
                command pontoon call --url http://127.0.0.1:8080/mcp/slides --header 'X-OpenWebUI-User-Id: ada' $tool || true
            done
            for tries in $(seq 100); do job=$(command pontoon jobs --status timed_out --json | jq -r .job_id); test -z "$job" || break; sleep 0.1; done""",
        "steps": [
            block(OPERATIONS, "$ pontoon jobs --user ada", varies=OF_ITS_DAY),
            block(OPERATIONS, "$ pontoon jobs show", replace=(("3f6c0b1e-8f0a-4c59-9a34-0d2f6f2f7a11", "$job"),), varies=OF_ITS_DAY),
        ],
    },
    "CONTRIBUTING": {"steps": [block(README, "cargo install --locked"), block("CONTRIBUTING.md", "cargo build", shows='"result"')]},
}

# What is checked in another way, and how.
APART = [
    # Drawings.
    (README, "Open WebUI, Claude Code,", "picture", ""),
    ("ARCHITECTURE.md", "front                     session", "picture", ""),
    (OPERATIONS, "browser ── nginx", "picture", ""),
    (OPEN_WEBUI, "browser ── nginx", "picture", ""),
    (LIVE_APP, "Claude Code  ──", "picture", ""),
    (HOST_TOOLS, "Claude Code  ──", "picture", ""),
    ("examples/live-app/README.md", "Claude Code  ──", "picture", ""),
    ("CONTRIBUTING.md", "back: stop a pooled child", "picture", "a message of a commit"),
    # Programs of the repository: each is there, and knows what it is told.
    (README, "./scripts/test.sh", "scripts", ""),
    ("CONTRIBUTING.md", "./scripts/test.sh", "scripts", ""),
    ("CONTRIBUTING.md", "cargo install cargo-fuzz", "scripts", ""),
    ("docs/benchmarks.md", "./scripts/test.sh throughput", "scripts", ""),
    ("docs/benchmarks.md", "cargo bench -p pontoon --bench calls", "benches", ""),
    ("docs/benchmarks.md", "cargo bench -p pontoon-host --bench bridge", "benches", ""),
    (OPERATIONS, "scripts/setup-tests.sh office-excel", "scripts", ""),
    (INSTALL, "cargo install --locked", "scripts", ""),
    # Rust: the same lines are compiled.
    (README, "let total = Arc::new", "rust", ""),
    (README, "let model = Model::default();", "rust", ""),
    (HOST_TOOLS, "use pontoon_host::{Session", "rust", ""),
    (HOST_TOOLS, "use pontoon_host::model::Model;", "rust", ""),
    (LIVE_APP, "let pump = Pump::<App>::new();", "rust", ""),
    # Whole programs, which another test runs as they stand there.
    (LIVE_APP, "# app.py", "named in", "tests/interop/sketches.py"),
    (LIVE_APP, "// app.mjs", "named in", "tests/interop/sketches.py"),
    (LIVE_APP, "// answer.cpp", "named in", "tests/interop/sketches.py"),
    # A run of tests/install/first_minute.py (part `install`) is compared with this page, which it writes.
    ("docs/first-minute.md", "$ python3 -m venv", "told by", "tests/install/first_minute.py"),
    ("docs/first-minute.md", "$ pontoon serve", "told by", "tests/install/first_minute.py"),
    ("docs/first-minute.md", "$ pontoon call demo", "told by", "tests/install/first_minute.py"),
    ("docs/first-minute.md", "import asyncio", "told by", "tests/install/first_minute.py"),
    ("docs/first-minute.md", "$ python3 client.py", "told by", "tests/install/first_minute.py"),
    # What programs print: tests of theirs compare it, or its words are those of the source.
    (LIVE_APP, "PID  BRIDGE", "printed by", "crates/pontoon/src/cli"),
    (DOCTOR, "ws://127.0.0.1:7400: maxmcp 0.2.0", "report", "tests/all/doctor/seed.txt"),
    (DOCTOR, "npx @modelcontextprotocol/server-sequential-thinking", "report", ""),
    # Configurations.
    ("docs/configuration.md", "{", "configuration", ""),
    ("docs/configuration.md", '{ "command": "...", "files"', "entry", ""),
    ("examples/office-tools/README.md", "{", "configuration", ""),
    (LIVE_APP, '{ "pid": 1234', "json members", "pid url name token started"),
    (HOST_TOOLS, '{"type":"stdio"', "json members", "type command args"),
    (DOCTOR, "- run: pontoon doctor", "workflow", ""),
    # Containers and what is installed on a machine: files, services and flags that are named exist.
    (OPEN_WEBUI, "cd deploy/compose", "containers", ""),
    (OPERATIONS, "git clone", "containers", ""),
    (OPERATIONS, "docker compose", "containers", ""),
    (OPERATIONS, "helm install", "containers", ""),
    (OPERATIONS, "git pull", "containers", ""),
    (OPERATIONS, "0 * * * *", "containers", ""),
    ("deploy/compose/README.md", "cp .env.example", "containers", ""),
    ("examples/browser/README.md", "apt install chromium", "pins", "playwright"),
    ("examples/office-tools/README.md", "uv venv /opt/excel", "pins", "office-excel office-powerpoint"),
]
