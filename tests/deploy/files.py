#!/usr/bin/env python3
"""The files of `deploy/`, point by point, as the design asks for them.

    tests/deploy/files.py [--pontoon target/release/pontoon]

They are parsed and looked at, nothing is started. Where `docker compose`, `helm` (or what PONTOON_COMPOSE and
PONTOON_HELM name), `nginx` and `systemd-analyze` are there, these judge as well; where not, a line says so.
Ends with `N passed, N failed`.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
PYTHON = CACHE / "deploy" / "bin" / "python"
SECRETS = {"MCPO_API_KEY": "key", "MCPO_OWUI_JWT_SECRET": "jwt", "WEBUI_SECRET_KEY": "webui"}


def use_install() -> None:
    """Goes on in the environment that has a YAML reader."""
    if pathlib.Path(sys.prefix).resolve() != (CACHE / "deploy").resolve():
        subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", "deploy"], check=True, stdout=subprocess.DEVNULL)
        os.execv(PYTHON, [str(PYTHON), __file__, *sys.argv[1:]])


def text_of(*parts: str) -> str:
    return DEPLOY.joinpath(*parts).read_text()


def yaml_of(*parts: str):
    import yaml

    return yaml.safe_load(text_of(*parts))


def compose() -> dict:
    return yaml_of("compose", "compose.yaml")


def tool(name: str, words: list[str]) -> list[str] | None:
    """The words that start a program: from the variable, or if it answers."""
    if os.environ.get(name):
        return shlex.split(os.environ[name])
    works = shutil.which(words[0]) and subprocess.run([*words, "version"], capture_output=True).returncode == 0
    return words if works else None


# ---- compose ----


def compose_has_the_services() -> None:
    services = compose()["services"]
    assert {"nginx", "openwebui", "mcpo-bridge"} <= services.keys(), services.keys()
    assert services["mcpo-bridge"]["deploy"]["replicas"] == 3


def compose_publishes_80_and_443_only() -> None:
    services = compose()["services"]
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"nginx": ["80:80", "443:443"]}, published


def compose_has_the_network_and_the_volume() -> None:
    file = compose()
    assert file["networks"]["mcpo-network"]["driver"] == "bridge"
    assert "openwebui-data" in file["volumes"]
    assert "openwebui-data:/app/backend/data" in file["services"]["openwebui"]["volumes"]
    for name in ["nginx", "openwebui", "mcpo-bridge"]:
        assert "mcpo-network" in file["services"][name]["networks"], name


def compose_binds_jobs_logs_and_configuration() -> None:
    services = compose()["services"]
    binds = services["mcpo-bridge"]["volumes"]
    assert "./data/mcpo-jobs:/tmp/mcpo-jobs" in binds and "./data/mcpo-logs:/var/log/mcpo" in binds, binds
    assert "./config:/app/config:ro" in binds, binds
    # nginx must not see the records that lie beside the files.
    assert not any("mcpo-jobs" in bind for bind in services["nginx"]["volumes"])


def compose_works_with_folders_that_root_made() -> None:
    services = compose()["services"]
    prepare = services["prepare"]
    assert prepare["user"] == "0:0" and prepare["network_mode"] == "none"
    assert "chown 10001:10001 /tmp/mcpo-jobs /var/log/mcpo" in prepare["entrypoint"][-1]
    wanted = {bind for bind in services["mcpo-bridge"]["volumes"] if bind.startswith("./data")}
    assert wanted == set(prepare["volumes"]), "what is prepared is what is used"
    assert services["mcpo-bridge"]["depends_on"]["prepare"]["condition"] == "service_completed_successfully"


def compose_starts_in_order() -> None:
    services = compose()["services"]
    assert services["nginx"]["depends_on"]["mcpo-bridge"]["condition"] == "service_healthy"
    assert services["openwebui"]["depends_on"]["mcpo-bridge"]["condition"] == "service_healthy"
    assert "nginx" in services["openwebui"]["depends_on"]


def compose_checks_health_without_curl() -> None:
    health = compose()["services"]["mcpo-bridge"]["healthcheck"]
    expected = {"interval": "30s", "timeout": "10s", "retries": 3, "start_period": "10s"}
    assert health.pop("test") == ["CMD", "/usr/local/bin/pontoon", "health"]
    assert health == expected, health


def compose_restarts_unless_stopped() -> None:
    services = compose()["services"]
    for name in ["nginx", "openwebui", "mcpo-bridge"]:
        assert services[name]["restart"] == "unless-stopped", name


def variables() -> dict[str, str]:
    """Every variable of docs/configuration.md with its default; empty where that is no value."""
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    table = page.split("## Environment variables")[1].split("\n## ")[0]
    rows = re.findall(r"(?m)^\| `(MCPO_\w+)` \| (.*?) \|", table)
    assert len(rows) > 30, f"the table of docs/configuration.md is not where it was: {rows}"
    return {name: default.strip("`") if re.fullmatch(r"`[^`]*`", default) else "" for name, default in rows}


def interpolated(text: str, given: dict[str, str]) -> str:
    """A value as `docker compose` understands it."""
    while found := re.search(r"\$\{(\w+)(?::([-+?])([^${}]*))?}", text):
        name, kind, word = found.groups()
        value = given.get(name, "")
        assert value or kind != "?", f"{name}: {word}"
        value = {"-": value or word, "+": value and word}.get(kind, value)
        text = text[: found.start()] + value + text[found.end() :]
    return text


def bridge_environment(given: dict[str, str]) -> dict[str, str]:
    """What the bridge gets from compose when this stands in `.env`."""
    environment = compose()["services"]["mcpo-bridge"]["environment"]
    return {name: interpolated(str(value), SECRETS | given) for name, value in environment.items()}


def compose_sets_every_variable() -> None:
    unset = bridge_environment({})
    missing = variables().keys() - unset.keys()
    assert not missing, f"what stands in .env would not arrive: {missing}"
    unknown = unset.keys() - variables().keys()
    assert not unknown, f"docs/configuration.md does not have them: {unknown}"
    # What the file itself fixes, and where it means to differ from the default.
    fixed = {
        "MCPO_LISTEN": "0.0.0.0:8080",
        "MCPO_CONFIG_FILE": "/app/config/mcp-servers.json",
        "MCPO_JOBS_DIR": "/tmp/mcpo-jobs",
        "MCPO_STATE_DIR": "/var/lib/pontoon",
        "MCPO_LOG_DIR": "/var/log/mcpo",
        "MCPO_TRUSTED_PROXIES": "172.31.250.2",
    }
    own = {"MCPO_QUEUE_WAIT": "10", "MCPO_ALLOWED_HOSTS": "nginx,localhost"} | SECRETS
    for name, default in variables().items():
        if name in fixed:
            assert unset[name] == fixed[name], f"{name}: {unset[name]}"
            continue
        arrived = bridge_environment({name: "from-env"})[name]
        assert arrived.split(",")[-1] == "from-env", f"{name} of .env arrives as {arrived!r}"
        if name in own:
            assert unset[name] == own[name], f"{name}: {unset[name]}"
        elif name.startswith("MCPO_STATEFUL_"):
            assert unset[name] == default, f"{name}: {unset[name]}"
        else:
            assert unset[name] in ("", default), f"{name}: {unset[name]}"
    twins = ["MCPO_STATEFUL_MAX_PROCESSES_PER_IP", "MCPO_STATEFUL_MAX_PROCESSES_PER_CHAT"]
    for name in twins:
        given = bridge_environment({name: "3"})
        assert [given[twin] for twin in twins] == ["3", "3"], "the bridge refuses a contradiction"


def compose_insists_on_its_secrets() -> None:
    environment = compose()["services"]["mcpo-bridge"]["environment"]
    for name in ["MCPO_API_KEY", "MCPO_OWUI_JWT_SECRET"]:
        assert environment[name].startswith(f"${{{name}:?"), f"{name} must be asked for"


def compose_trusts_nginx_and_nobody_else() -> None:
    file = compose()
    address = file["services"]["nginx"]["networks"]["mcpo-network"]["ipv4_address"]
    assert file["services"]["mcpo-bridge"]["environment"]["MCPO_TRUSTED_PROXIES"] == address
    pool = file["networks"]["mcpo-network"]["ipam"]["config"][0]
    assert pool["subnet"].endswith(".0/24") and pool["ip_range"].endswith(".128/25") and address.endswith(".2")


def compose_lets_open_webui_tell_who_asks() -> None:
    environment = compose()["services"]["openwebui"]["environment"]
    assert environment["ENABLE_FORWARD_USER_INFO_HEADERS"] == "true"
    assert environment["FORWARD_USER_INFO_HEADER_JWT_SECRET"] == "${MCPO_OWUI_JWT_SECRET}"
    # Both sides agree on how long a turn may take.
    age = compose()["services"]["mcpo-bridge"]["environment"]["MCPO_OWUI_JWT_MAX_AGE"]
    assert environment["FORWARD_USER_INFO_HEADER_JWT_EXPIRES_SECONDS"] == age
    for connection in json.loads(environment["TOOL_SERVER_CONNECTIONS"]):
        assert connection["type"] == "mcp" and connection["info"]["id"], connection
        assert connection["url"].startswith("http://nginx/mcp/") and connection["key"] == "${MCPO_API_KEY}"
        assert connection["config"]["access_grants"], "without grants only administrators see the tool"


def compose_gives_no_needless_rights() -> None:
    services = compose()["services"]
    for name in ["prepare", "nginx", "mcpo-bridge"]:
        service = services[name]
        assert service["cap_drop"] == ["ALL"] and service["read_only"] is True, name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert "privileged" not in service and "network_mode" not in service or name == "prepare", name
    bridge = services["mcpo-bridge"]
    assert "cap_add" not in bridge and bridge["init"] is True
    assert bridge["deploy"]["resources"]["limits"]["pids"] and bridge["deploy"]["resources"]["limits"]["memory"]
    seconds = int(bridge["stop_grace_period"].rstrip("s"))
    assert seconds > 45, "open calls have 30 s, and their servers more after that"


def compose_pins_its_images() -> None:
    for name, service in compose()["services"].items():
        tag = service["image"].rsplit(":", 1)[1]
        assert re.fullmatch(r"v?\d+\.\d+\.\d+(-\w+)?", tag), f"{name}: {service['image']}"


def compose_asks_for_its_secrets() -> None:
    example = dict(re.findall(r"^(\w+)=(.*)$", text_of("compose", ".env.example"), re.M))
    for name in SECRETS:
        assert example[name] == "", f"{name} must be in the example, and empty"


def what_a_machine_makes_is_ignored() -> None:
    for path in ["compose/data/mcpo-jobs/x", "compose/.env", "compose/config/mcp-servers.json", "nginx/tls/privkey.pem"]:
        ended = subprocess.run(["git", "check-ignore", "-q", DEPLOY / path], cwd=REPOSITORY)
        assert ended.returncode == 0, f"{path} would be committed"
    tracked = subprocess.run(["git", "ls-files", DEPLOY], cwd=REPOSITORY, capture_output=True, text=True).stdout
    assert "mcp-servers.json.example" in tracked, "the example must not be ignored"


def docker_compose_accepts_it() -> str | None:
    command = tool("PONTOON_COMPOSE", ["docker", "compose"])
    if command is None:
        return "there is no docker compose here"
    folder = DEPLOY / "compose"
    ended = subprocess.run(
        [*command, "-f", folder / "compose.yaml", "config", "--format", "json"],
        env={name: value for name, value in os.environ.items() if not name.startswith("MCPO_")} | SECRETS,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    services = json.loads(ended.stdout)["services"]
    # It must read the file as `bridge_environment` does, by which the other checks go.
    assert services["mcpo-bridge"]["environment"] == bridge_environment({}), services["mcpo-bridge"]["environment"]
    refused = subprocess.run(
        [*command, "-f", folder / "compose.yaml", "--env-file", os.devnull, "config", "-q"],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
    )
    assert refused.returncode != 0 and ".env.example" in refused.stderr, f"no secrets: {refused.stderr}"


# ---- images ----


def images_are_small_and_not_root() -> None:
    stages = re.split(r"(?m)^FROM ", text_of("Dockerfile"))
    targets = {re.search(r" AS (\w+)", stage)[1]: stage for stage in stages[1:] if " AS " in stage.splitlines()[0]}
    assert targets["pontoon"].startswith("scratch AS pontoon"), "the bridge alone is on nothing"
    for name in ["pontoon", "office"]:
        stage = targets[name]
        assert "USER 10001:10001" in stage and "MCPO_LISTEN=0.0.0.0:8080" in stage, name
        assert 'CMD ["/usr/local/bin/pontoon", "health"]' in stage, name
        assert "--interval=30s --timeout=10s --retries=3 --start-period=10s" in stage, name
        assert "curl" not in stage, name
    flags = '"-C target-feature=+crt-static -C relocation-model=static"'
    assert flags in targets["build"] and "not a dynamic executable" in targets["build"]
    assert "--locked" in targets["build"]


def stage(name: str) -> str:
    """What the Dockerfile says of one target."""
    return re.split(r"(?m)^FROM ", text_of("Dockerfile").split(f" AS {name}\n")[1])[0]


def images_hold_an_example() -> None:
    for name in ["pontoon", "office"]:
        assert re.search(r"(?m)^COPY \S+ /app/config/mcp-servers\.json\.example$", stage(name)), name
    # A file that is named must be there: without one, the bridge alone serves its demo.
    assert "MCPO_CONFIG_FILE" not in stage("pontoon")
    assert "mcp-servers.json /app/config/mcp-servers.json\n" in stage("office")


def an_image_without_a_configuration_serves_the_demo(program: pathlib.Path | None) -> str | None:
    """The bridge with the variables of the image `pontoon`, but for its folders and the port."""
    if program is None:
        return "no --pontoon was given"
    environment = dict(re.findall(r"(\w+)=(\S+)", re.search(r"(?s)\nENV (.*?)\nUSER", stage("pontoon"))[1]))
    with tempfile.TemporaryDirectory() as directory:
        for name in [name for name in environment if name.endswith("_DIR") or name == "HOME"]:
            environment[name] = f"{directory}/{name}"
        environment["MCPO_LISTEN"] = environment["MCPO_LISTEN"].replace(":8080", ":0")
        bridge = subprocess.Popen([program, "serve"], env=environment, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            told = []
            for line in bridge.stderr:
                told.append(line)
                if "KEY was made" in line:
                    break
            told = "".join(told)
            port = re.search(r"listening on http://0\.0\.0\.0:(\d+)", told)
            key = re.search(r"KEY was made for this run: (\w{32,})", told)
            assert port and key, told
            for header, status in [({}, 401), ({"Authorization": f"Bearer {key[1]}"}, 400)]:
                headers = header | {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
                request = urllib.request.Request(f"http://127.0.0.1:{port[1]}/mcp/demo", b"{}", headers)
                try:
                    answered = urllib.request.urlopen(request, timeout=30).status
                except urllib.error.HTTPError as error:
                    answered = error.code
                assert answered == status, f"{answered} with {header}"
        finally:
            bridge.terminate()
            bridge.wait(timeout=60)


def images_have_the_versions_that_are_tested() -> None:
    versions = dict(re.findall(r"(?m)^ARG (\w+)=(\S+)$", text_of("Dockerfile")))
    assert f'channel = "{versions["RUST"]}"' in (REPOSITORY / "rust-toolchain.toml").read_text()
    installs = REPOSITORY / "tests" / "interop" / "installs"
    node = json.loads((installs / "node22" / "package.json").read_text())
    assert set(node["optionalDependencies"].values()) == {versions["NODE"]}
    for server, pin in [("excel", "excel-mcp-server==2.2.2"), ("powerpoint", "office-powerpoint-mcp-server==2.0.7")]:
        pins = (installs / f"office-{server}" / "requirements.txt").read_text()
        assert pin in pins and f"installs/office-{server}/requirements.txt" in text_of("Dockerfile"), server
    assert re.search(r"(?m)^mcp==1\.", (installs / "office-powerpoint" / "requirements.txt").read_text())
    assert "--compile-bytecode" in text_of("Dockerfile")


def images_get_only_what_the_build_needs() -> None:
    ignored = text_of("Dockerfile.dockerignore").splitlines()
    assert "*" in ignored, "everything is left out first"
    sources = re.findall(r"(?m)^COPY (?!--from)(.+?) \S+$", text_of("Dockerfile"))
    for source in " ".join(sources).split():
        assert any(source == line[1:] or source.startswith(line[1:] + "/") for line in ignored if line[:1] == "!"), source
        assert (REPOSITORY / source).exists(), source


# ---- nginx ----


def nginx_routes_and_waits() -> None:
    locations, bridge = text_of("nginx", "locations.inc"), text_of("nginx", "bridge.inc")
    for path, upstream in [("mcp", "stateful"), ("mcpo", "stateful"), ("sse", "stateful"), ("mcp-ws", "stateful"), ("files", "stateless")]:
        block = re.search(rf"location /{path}/\s*{{(.*?)}}", locations, re.S)
        assert block and "include bridge.inc" in block[1] and f"mcpo_bridge_{upstream}" in block[1], path
    assert re.search(r"location / {\s*proxy_pass http://openwebui;", locations)
    for line in ["proxy_read_timeout 600s;", "proxy_send_timeout 600s;", "proxy_buffering off;"]:
        assert line in bridge, line
    assert "non_idempotent" not in re.sub(r"#.*", "", bridge), "a call must never be made twice"


def nginx_replaces_addresses() -> None:
    forwarded = text_of("nginx", "forwarded.inc")
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in forwarded
    assert "proxy_set_header X-Real-IP $remote_addr;" in forwarded
    everything = "".join(file.read_text() for file in (DEPLOY / "nginx").glob("*.*"))
    assert "$proxy_add_x_forwarded_for" not in everything


def nginx_gives_up_on_no_replica() -> None:
    """One that is restarted is back at once; `fail_timeout`, however short, makes a rolling restart an outage."""
    for main in ["nginx.conf", "nginx-debian.conf"]:
        config = text_of("nginx", main)
        for upstream in ["mcpo_bridge_stateful", "mcpo_bridge_stateless"]:
            lines = re.findall(r"server \S+(.*);", re.search(rf"upstream {upstream} {{(.*?)\n    }}", config, re.S)[1])
            assert lines and all(line.split()[-1] == "max_fails=0" for line in lines), f"{main}: {lines}"
        assert "ip_hash" not in config, main
    router = text_of("helm", "pontoon", "templates", "router.yaml")
    assert router.count("max_fails=0;") == 2 and "fail_timeout" not in router
    assert "sticky learn" in text_of("nginx", "nginx.conf")
    assert "hash $conversation consistent;" in text_of("nginx", "nginx-debian.conf")


def nginx_listens_on_80_and_443() -> None:
    assert "listen 80;" in text_of("nginx", "servers.inc")
    assert "listen 443 ssl;" in text_of("nginx", "tls", "tls.conf.example")


# ---- systemd ----


def unit() -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for name, value in re.findall(r"(?m)^(\w+)=(.*)$", text_of("systemd", "pontoon.service")):
        settings.setdefault(name, []).append(value)
    return settings


def the_unit_kills_all_and_gives_little() -> None:
    settings = unit()
    expected = {
        "KillMode": "control-group",
        "DynamicUser": "yes",
        "StateDirectory": "pontoon",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "CapabilityBoundingSet": "",
    }
    for name, value in expected.items():
        assert settings[name] == [value], f"{name}: {settings.get(name)}"
    assert int(settings["TimeoutStopSec"][0].rstrip("s")) > 45
    assert "MCPO_JOBS_DIR=/var/lib/pontoon/jobs" in settings["Environment"]
    assert settings["ExecReload"] == ["/bin/kill -HUP $MAINPID"]


def the_unit_of_several_differs_in_little() -> None:
    several, one = (text_of("systemd", name) for name in ["pontoon@.service", "pontoon.service"])
    differ = {line for line in several.splitlines() if "=" in line} ^ {line for line in one.splitlines() if "=" in line}
    about = {line.split("=")[0] for line in differ if not line.startswith("#")}
    assert about == {"Description", "Environment", "EnvironmentFile", "DynamicUser", "User", "Group", "CacheDirectory",
                     "RemoveIPC", "MemoryMax"}, about
    assert "MCPO_JOBS_DIR=/var/lib/pontoon/jobs" in several and "127.0.0.1:%i" in several


def systemd_accepts_it() -> str | None:
    if not shutil.which("systemd-analyze"):
        return "there is no systemd-analyze here"
    with tempfile.TemporaryDirectory() as directory:
        for shipped, instance in [("pontoon.service", "pontoon.service"), ("pontoon@.service", "pontoon@8081.service")]:
            file = pathlib.Path(directory) / instance
            # The program need not be installed for this.
            file.write_text(text_of("systemd", shipped).replace("/usr/local/bin/pontoon", "/bin/true"))
            ended = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True)
            ours = [line for line in ended.stderr.splitlines() if instance in line]
            assert ended.returncode == 0 and not ours, ended.stderr


# ---- helm ----

ONE = {"secret": {"apiKey": "key"}}
NAMED = {"secret": {"apiKeys": "a=1,b=2", "owuiJwtSecret": "jwt", "linkSecret": "link", "sessionSecret": "session"}}
THREE = {
    "replicas": 3,
    "secret": {"existing": "keys"},
    "jobs": {"size": "10Gi", "accessMode": "ReadWriteMany"},
    "trustedProxies": ["10.0.0.0/8"],
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}], "hostnames": ["tools.example.org"]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
}
# Kinds of add-ons, whose schemas the judge does not have.
ADDED = {"HTTPRoute", "ServiceMonitor", "PrometheusRule"}


def render(command: list[str], values: dict) -> subprocess.CompletedProcess:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values, file)
        file.flush()
        words = [*command, "template", "--kube-version", "1.31.0", "pontoon", DEPLOY / "helm" / "pontoon", "-f", file.name]
        return subprocess.run(words, capture_output=True, text=True)


def the_chart_has_every_part() -> None:
    chart = DEPLOY / "helm" / "pontoon"
    kinds = set(re.findall(r"(?m)^kind: (\w+)$", "".join(file.read_text() for file in chart.glob("templates/*.yaml"))))
    expected = {"StatefulSet", "Service", "ConfigMap", "Secret", "PodDisruptionBudget", "NetworkPolicy", "HTTPRoute"}
    expected |= {"ServiceMonitor", "PrometheusRule"}
    assert expected <= kinds, expected - kinds
    values = yaml_of("helm", "pontoon", "values.yaml")
    assert values["httpRoute"]["enabled"] is False and values["networkPolicy"]["enabled"] is True
    for name in ["bridge.inc", "forwarded.inc"]:
        assert (chart / "files" / name).read_text() == text_of("nginx", name), f"{name} is no copy any more"
    assert (chart / "files" / "rules.yml").read_text() == text_of("prometheus", "rules.yml"), "it is no copy any more"
    assert values["serviceMonitor"]["enabled"] is values["prometheusRule"]["enabled"] is False


def the_chart_sets_every_variable() -> None:
    settings = yaml_of("helm", "pontoon", "values.yaml")["settings"]
    assert settings.keys() <= variables().keys(), settings.keys() - variables().keys()
    for name, default in variables().items():
        if name == "MCPO_STATEFUL_MAX_PROCESSES_PER_CHAT":
            # The other name of `..._PER_IP`: the bridge refuses two values for one thing.
            assert settings.get(name) == "", f"{name}: {settings.get(name)}"
        elif name.startswith("MCPO_STATEFUL_"):
            assert settings.get(name) == default, f"{name}: {settings.get(name)}"


def secrets() -> set[str]:
    """The variables that docs/configuration.md lets one put into a file."""
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    names = re.findall(r"`(MCPO_\w+)_FILE`", re.search(r"A secret may lie in a file.*", page)[0])
    assert len(names) >= 4, names
    return set(names)


def the_chart_hides_every_secret() -> None:
    names = text_of("helm", "pontoon", "templates", "_names.tpl")
    listed = set(json.loads(re.search(r'define "pontoon.secrets" -}}\n(.*)', names)[1]))
    assert listed == secrets(), listed ^ secrets()
    made = text_of("helm", "pontoon", "templates", "secret.yaml")
    assert set(re.findall(r"(?m)^  (MCPO_\w+): ", made)) == secrets(), "the chart's own Secret lacks one"
    assert not secrets() & yaml_of("helm", "pontoon", "values.yaml")["settings"].keys(), "they would stand in clear"


def the_chart_outlives_its_servers() -> None:
    """`/health` is 503 when no server works: a pod that is judged by it would be restarted again and again."""
    pod = text_of("helm", "pontoon", "templates", "statefulset.yaml")
    probes = dict(re.findall(r"(?m)^ +(\w+)Probe:\n +(.+)$", pod))
    lives = "tcpSocket: { port: http }"
    assert probes == {"startup": lives, "liveness": lives, "readiness": "httpGet: { path: /ready, port: http }"}, probes


def the_chart_writes_only_where_it_may() -> None:
    """The image names folders, and the root of the pod cannot be written."""
    pod = text_of("helm", "pontoon", "templates", "statefulset.yaml")
    assert "readOnlyRootFilesystem: true" in pod
    mounts = re.findall(r"mountPath: (\S+)", pod)
    set_here = dict(re.findall(r"- name: (MCPO_\w+)\n +value: (.*)", pod))
    in_image = dict(re.findall(r"(MCPO_\w+_DIR)=(\S+)", text_of("Dockerfile")))
    assert in_image.keys() >= {"MCPO_JOBS_DIR", "MCPO_LOG_DIR", "MCPO_STATE_DIR"}, in_image
    for name, folder in (in_image | {name: value.strip('"') for name, value in set_here.items()}).items():
        if name.endswith("_DIR") and folder:
            assert any(f"{folder}/".startswith(f"{mount}/") for mount in mounts), f"{name}={folder} cannot be written"


def the_chart_renders() -> str | None:
    import kubernetes_validate
    import yaml

    command = tool("PONTOON_HELM", ["helm"])
    if command is None:
        return "there is no helm here"
    for values, pods in [(ONE, 1), (NAMED, 1), (THREE, 3)]:
        ended = render(command, values)
        assert ended.returncode == 0, ended.stderr
        manifests = [manifest for manifest in yaml.safe_load_all(ended.stdout) if manifest]
        for manifest in manifests:
            if manifest["kind"] not in ADDED:
                kubernetes_validate.validate(manifest, "1.31", strict=True)
        by_kind = {manifest["kind"]: manifest for manifest in manifests}
        bridge = by_kind["StatefulSet"]["spec"]
        container = bridge["template"]["spec"]["containers"][0]
        assert bridge["replicas"] == pods
        assert container["livenessProbe"]["tcpSocket"] == container["startupProbe"]["tcpSocket"] == {"port": "http"}
        assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
        variables_of_pod = {variable["name"]: variable for variable in container["env"]}
        assert len(variables_of_pod) == len(container["env"]), "a variable stands twice"
        name = values["secret"].get("existing", "pontoon")
        for secret in secrets():
            reference = {"name": name, "key": secret, "optional": True}
            assert variables_of_pod[secret] == {"name": secret, "valueFrom": {"secretKeyRef": reference}}, secret
        held = set(by_kind["Secret"]["stringData"].values()) if "Secret" in by_kind else {name}
        assert held == set(values["secret"].values()), held
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert bridge["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
        headless = [m for m in manifests if m["kind"] == "Service" and m["spec"].get("clusterIP") == "None"]
        assert [service["metadata"]["name"] for service in headless] == [bridge["serviceName"]]
        if pods > 1:
            monitor, rule = by_kind["ServiceMonitor"], by_kind["PrometheusRule"]
            chosen = monitor["spec"]["selector"]["matchLabels"].items()
            services = [m for m in manifests if m["kind"] == "Service" and chosen <= m["metadata"]["labels"].items()]
            assert services == headless, "every bridge is read once, by itself"
            authorization = monitor["spec"]["endpoints"][0]["authorization"]
            assert authorization == {"credentials": {"name": name, "key": "MCPO_API_KEY"}}
            assert monitor["metadata"]["labels"]["release"] == "prometheus"
            assert rule["spec"] == yaml_of("prometheus", "rules.yml")
        else:
            assert not ADDED & by_kind.keys()
        routed = [manifest for manifest in manifests if manifest["kind"] == "Deployment"]
        assert bool(routed) == (pods > 1), "nginx stands before several, and only then"


def the_chart_refuses_what_cannot_work() -> str | None:
    command = tool("PONTOON_HELM", ["helm"])
    if command is None:
        return "there is no helm here"
    for values, told in [
        ({}, "secret.apiKey"),
        (ONE | {"replicas": 3}, "jobs.size"),
        (ONE | {"replicas": 3, "jobs": {"size": "1Gi"}}, "ReadWriteMany"),
        (THREE | {"router": {"enabled": False}}, "router.enabled"),
        (THREE | {"trustedProxies": []}, "trustedProxies"),
        (ONE | {"settings": {"MCPO_LINK_SECRET": "link"}}, "in clear"),
        (ONE | {"settings": {"MCPO_LOG_DIR": "/var/log"}}, "settings.MCPO_LOG_DIR"),
    ]:
        ended = render(command, values)
        assert ended.returncode != 0 and told in ended.stderr, f"{values}: {ended.stderr[-300:]}"


# ---- the example ----


def the_example_is_what_compose_ships() -> None:
    example = (REPOSITORY / "examples" / "office-tools" / "mcp-servers.json").read_text()
    assert text_of("compose", "config", "mcp-servers.json.example") == example
    servers = json.loads(re.sub(r"(?m)^\s*//.*$", "", example))["mcpServers"]
    assert servers["powerpoint"]["mode"] == "stateful" and servers["powerpoint"]["command"] == "ppt_mcp_server"
    assert servers["excel"]["workspace"] == "session" and servers["excel"]["mode"] == "stateless"
    assert servers["excel"]["env"]["EXCEL_FILES_PATH"] == "${MCPO_WORKDIR}"


def the_readme_pins_what_is_tested() -> None:
    """What `uvx` fetches without a version is another program tomorrow."""
    pins = {}
    for file in REPOSITORY.glob("tests/interop/installs/*/requirements.txt"):
        pins[file.parent.name] = dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", file.read_text()))
    tested = {
        "mcp-server-time": pins["py-time"]["mcp-server-time"],
        "office-powerpoint-mcp-server": pins["office-powerpoint"]["office-powerpoint-mcp-server"],
        "excel-mcp-server": pins["office-excel"]["excel-mcp-server"],
    }
    for page in [REPOSITORY / "README.md", REPOSITORY / "examples" / "office-tools" / "README.md"]:
        for arguments in re.findall(r'"command": "uvx",\s*"args": \[(.*?)]', page.read_text(), re.S):
            named = re.findall(r'"([\w.-]*-mcp-server|mcp-server-[\w.-]+)(?:==([^"]+))?"', arguments)
            assert len(named) == 1, f"{page.name}: {arguments}"
            assert tested[named[0][0]] == named[0][1], f"{page.name}: {arguments}"


def pontoon_accepts_the_example(program: pathlib.Path | None) -> str | None:
    if program is None:
        return "no --pontoon was given"
    with tempfile.TemporaryDirectory() as directory:
        # Programs of these names, so that only the configuration is judged.
        for name in ["ppt_mcp_server", "excel-mcp-server"]:
            (pathlib.Path(directory) / name).write_text("#!/bin/sh\n")
            (pathlib.Path(directory) / name).chmod(0o755)
        example = REPOSITORY / "examples" / "office-tools" / "mcp-servers.json"
        folders = {"MCPO_JOBS_DIR": f"{directory}/jobs", "MCPO_LOG_DIR": f"{directory}/log"}
        folders |= {"MCPO_STATE_DIR": f"{directory}/state", "MCPO_CONFIG_FILE": str(example)}

        def told(settings: dict[str, str]) -> str:
            keys = {"MCPO_API_KEY": "a-key-of-the-test", "MCPO_OWUI_JWT_SECRET": "s" * 32}
            plain = {"PATH": f"{directory}:{os.environ['PATH']}", "HOME": directory}
            plain |= bridge_environment(keys | settings) | folders
            ended = subprocess.run([program, "check"], env=plain, capture_output=True, text=True)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            return ended.stdout + ended.stderr

        whole = told({"MCPO_BASE_URL": "https://chat.example.org"})
        assert "warning" not in whole.lower(), whole
        # Links that do not say a host are right behind the same proxy alone, and that is told.
        relative = told({})
        warnings = [line for line in relative.splitlines() if "warning:" in line.lower()]
        assert len(warnings) == 1 and "set MCPO_BASE_URL" in warnings[0], relative


CHECKS = [
    compose_has_the_services,
    compose_publishes_80_and_443_only,
    compose_has_the_network_and_the_volume,
    compose_binds_jobs_logs_and_configuration,
    compose_works_with_folders_that_root_made,
    compose_starts_in_order,
    compose_checks_health_without_curl,
    compose_restarts_unless_stopped,
    compose_sets_every_variable,
    compose_insists_on_its_secrets,
    compose_trusts_nginx_and_nobody_else,
    compose_lets_open_webui_tell_who_asks,
    compose_gives_no_needless_rights,
    compose_pins_its_images,
    compose_asks_for_its_secrets,
    what_a_machine_makes_is_ignored,
    docker_compose_accepts_it,
    images_are_small_and_not_root,
    images_hold_an_example,
    images_have_the_versions_that_are_tested,
    images_get_only_what_the_build_needs,
    nginx_routes_and_waits,
    nginx_replaces_addresses,
    nginx_gives_up_on_no_replica,
    nginx_listens_on_80_and_443,
    the_unit_kills_all_and_gives_little,
    the_unit_of_several_differs_in_little,
    systemd_accepts_it,
    the_chart_has_every_part,
    the_chart_sets_every_variable,
    the_chart_hides_every_secret,
    the_chart_outlives_its_servers,
    the_chart_writes_only_where_it_may,
    the_chart_renders,
    the_chart_refuses_what_cannot_work,
    the_example_is_what_compose_ships,
    the_readme_pins_what_is_tested,
]


def check(name: str, work) -> str:
    """`ok`, `skip` or `FAIL`; a check that cannot be made here says why."""
    try:
        outcome, told = ("skip", f": {why}") if (why := work()) else ("ok", "")
    except (AssertionError, KeyError, IndexError, TypeError, OSError) as error:
        outcome, told = "FAIL", f": {type(error).__name__}: {str(error)[:800]}"
    print(f"{outcome:<5}{name}{told}", flush=True)
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", type=lambda path: pathlib.Path(path).resolve(strict=True))
    options = parser.parse_args()
    outcomes = [check(work.__name__.replace("_", " "), work) for work in CHECKS]
    outcomes.append(check("pontoon accepts the example", lambda: pontoon_accepts_the_example(options.pontoon)))
    demo = lambda: an_image_without_a_configuration_serves_the_demo(options.pontoon)
    outcomes.append(check("an image without a configuration serves the demo", demo))
    print(f"{outcomes.count('skip')} could not be made here")
    print(f"{outcomes.count('ok')} passed, {outcomes.count('FAIL')} failed")
    sys.exit(1 if "FAIL" in outcomes else 0)


if __name__ == "__main__":
    use_install()
    main()
