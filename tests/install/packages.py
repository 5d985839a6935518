#!/usr/bin/env python3
"""The packages that scripts/dist.sh made, installed as users install them, and the demo used from each.

    tests/install/packages.py --dist dist

Those of this machine are run; the wheel goes into an empty environment, the npm packages come from a registry on
loopback, the Debian package is unpacked. Needs npm, curl, dpkg, and `scripts/setup-tests.sh py-mcp2`.
Ends with `N passed, N failed`.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile

from registry import manifest, registry
from terminal import PYTHON_WITH_SDK, ended, environment, serving, terminal, use_demo

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MACHINE = platform.machine()
TRIPLE = f"{MACHINE}-unknown-linux-gnu"
CPU = {"x86_64": "x64", "aarch64": "arm64"}[MACHINE]
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
VERSION = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]["version"]


class Dist:
    """What was made, and an empty folder for a check."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.archive = folder / f"pontoon-{VERSION}-{TRIPLE}.tar.gz"
        self.debian = folder / f"pontoon_{VERSION}_{ARCHITECTURE}.deb"
        self.npm = [folder / f"pontoon-mcp-{VERSION}.tgz", folder / f"pontoon-mcp-linux-{CPU}-{VERSION}.tgz"]
        [self.wheel] = folder.glob(f"pontoon_mcp-{VERSION}-*{MACHINE}.whl")


def run(words: list, **more) -> str:
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, **more)
    assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def has_all_that_it_promises(folder: pathlib.Path, program: pathlib.Path) -> None:
    """Installed as it is, it says its version and the demo works from it."""
    settings = environment(folder, program.parent)
    with terminal(folder, settings) as shell:
        assert shell.type("pontoon --version").said == f"pontoon {VERSION}"
        use_demo(folder, shell, settings)


# ---- what was made ----


def the_checksums_are_those_of_all_files(dist: Dist, folder: pathlib.Path) -> None:
    listed = dict(reversed(line.split("  ")) for line in (dist.folder / "SHA256SUMS").read_text().splitlines())
    there = {file.name for file in dist.folder.iterdir()} - {"SHA256SUMS"}
    assert listed.keys() == there, listed.keys() ^ there
    for name, digest in listed.items():
        assert hashlib.sha256((dist.folder / name).read_bytes()).hexdigest() == digest, name
    run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist.folder)


def the_version_is_the_same_everywhere(dist: Dist, folder: pathlib.Path) -> None:
    main, linux = [manifest(archive) for archive in dist.npm]
    with zipfile.ZipFile(dist.wheel) as wheel:
        metadata = wheel.read(f"pontoon_mcp-{VERSION}.dist-info/METADATA").decode()
    said = {
        "npm": main["version"],
        "npm for this machine": linux["version"],
        "Debian": run(["dpkg-deb", "--field", dist.debian, "Version"]).strip(),
        "wheel": metadata.split("\nVersion: ")[1].split("\n")[0],
        **main["optionalDependencies"],
    }
    assert set(said.values()) == {VERSION}, said
    # npm takes the package of the machine alone, by these words.
    assert (linux["name"], linux["os"], linux["cpu"]) == (f"pontoon-mcp-linux-{CPU}", ["linux"], [CPU])
    assert linux["name"] in main["optionalDependencies"] and CPU in main["cpu"]


def the_program_is_static_and_names_no_folder_of_its_builder(dist: Dist, folder: pathlib.Path) -> None:
    with tarfile.open(dist.archive) as archive:
        program = archive.extractfile(f"pontoon-{VERSION}-{TRIPLE}/pontoon").read()
    for name in [os.fsencode(pathlib.Path.home()) + b"/.cargo/", os.fsencode(REPOSITORY) + b"/crates/"]:
        assert name not in program, f"{name!r} is in the program"
    (folder / "program").write_bytes(program)
    headers = run(["readelf", "--program-headers", "--wide", folder / "program"])
    assert "INTERP" not in headers and "EXEC (Executable file)" in headers, headers


def the_archive_has_pages_completions_and_licences(dist: Dist, folder: pathlib.Path) -> None:
    with tarfile.open(dist.archive) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        owners = {(entry.uid, entry.gid) for entry in archive}
        licences = archive.extractfile(f"pontoon-{VERSION}-{TRIPLE}/LICENSES-OF-PARTS.txt").read().decode()
    assert owners == {(0, 0)}, owners
    expected = {"pontoon", "README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "mcp-servers.example.json"}
    expected |= {f"completions/{name}" for name in ["pontoon.bash", "_pontoon", "pontoon.fish", "pontoon.elv", "pontoon.ps1"]}
    expected |= {f"man/{name}.1" for name in ["pontoon", "pontoon-serve", "pontoon-call", "pontoon-jobs-show"]}
    assert expected <= names, expected - names
    assert "man/pontoon-man.1" not in names, "it is for those who make packages"
    for part in ["  hyper 1", "  ring 0", "  tokio 1", "swagger-ui", "Copyright (c) Tokio Contributors"]:
        assert part in licences, f"{part} is not in the licences"
    assert "  tempfile " not in licences, "what tests need is no part of the program"


def cargo_binstall_would_find_the_archive(dist: Dist, folder: pathlib.Path) -> None:
    package = tomllib.loads((REPOSITORY / "crates" / "pontoon" / "Cargo.toml").read_text())["package"]
    metadata = package["metadata"]["binstall"]
    words = {"{ repo }": "", "{ version }": VERSION, "{ target }": TRIPLE, "{ bin }": "pontoon"}
    for word, value in words.items():
        metadata = {key: text.replace(word, value) for key, text in metadata.items()}
    assert metadata["pkg-url"] == f"/releases/download/v{VERSION}/{dist.archive.name}", metadata
    with tarfile.open(dist.archive) as archive:
        assert archive.getmember(metadata["bin-dir"]).mode & 0o111, metadata


# ---- installed ----


def the_archive_works_where_it_is_unpacked(dist: Dist, folder: pathlib.Path) -> None:
    run(["tar", "-xzf", dist.archive, "-C", folder])
    has_all_that_it_promises(folder, folder / f"pontoon-{VERSION}-{TRIPLE}" / "pontoon")


def the_debian_package_works_and_has_files_where_they_belong(dist: Dist, folder: pathlib.Path) -> None:
    fields = run(["dpkg", "--info", dist.debian])
    for field in ["Package: pontoon\n", f"Architecture: {ARCHITECTURE}\n", "Section: net\n"]:
        assert field in fields, fields
    assert "Depends" not in fields, "a static program needs nothing"
    listed = run(["dpkg", "--contents", dist.debian])
    assert {line.split()[1] for line in listed.splitlines()} == {"root/root"}, listed
    root = folder / "root"
    run(["dpkg", "--extract", dist.debian, root])
    for file in [
        "man/man1/pontoon.1.gz",
        "bash-completion/completions/pontoon",
        "zsh/vendor-completions/_pontoon",
        "fish/vendor_completions.d/pontoon.fish",
        "doc/pontoon/copyright",
    ]:
        assert (root / "usr" / "share" / file).stat().st_size > 0, file
    unit = (root / "usr" / "share" / "doc" / "pontoon" / "pontoon.service").read_text()
    assert "ExecStart=/usr/bin/pontoon serve" in unit and "/usr/local" not in unit
    has_all_that_it_promises(folder, root / "usr" / "bin" / "pontoon")


def the_wheel_works_in_an_empty_environment_and_leaves_nothing(dist: Dist, folder: pathlib.Path) -> None:
    run([PYTHON_WITH_SDK / "python", "-m", "venv", folder / "venv"])
    pip = [folder / "venv" / "bin" / "pip", "--disable-pip-version-check", "--quiet"]
    before = {file for file in (folder / "venv").rglob("*") if "__pycache__" not in file.parts}
    run([*pip, "install", "--no-index", "--find-links", dist.folder, "pontoon-mcp"])
    assert run([folder / "venv" / "bin" / "pontoon-mcp", "--version"]).strip() == f"pontoon {VERSION}"
    has_all_that_it_promises(folder, folder / "venv" / "bin" / "pontoon")
    run([*pip, "check"])
    run([*pip, "uninstall", "--yes", "pontoon-mcp"])
    after = {file for file in (folder / "venv").rglob("*") if "__pycache__" not in file.parts}
    assert before == after, before ^ after


@contextlib.contextmanager
def npm_installed(dist: Dist, folder: pathlib.Path, *options: str):
    """The package in an empty prefix, from a registry that has nothing else. Gives the prefix and the settings."""
    prefix = folder / "prefix"
    prefix.mkdir()
    with registry(dist.npm) as address:
        settings = os.environ | {"HOME": str(folder), "npm_config_registry": address, "npm_config_cache": str(folder / "cache")}
        settings |= {"npm_config_update_notifier": "false", "npm_config_audit": "false", "npm_config_fund": "false"}
        run(["npm", "install", "--prefix", prefix, *options, "pontoon-mcp"], env=settings, cwd=folder)
        yield prefix, settings


def the_npm_package_works_in_an_empty_prefix(dist: Dist, folder: pathlib.Path) -> None:
    with npm_installed(dist, folder) as (prefix, settings):
        installed = sorted(path.name for path in (prefix / "node_modules").iterdir() if not path.name.startswith("."))
        assert installed == ["pontoon-mcp", f"pontoon-mcp-linux-{CPU}"], installed
        has_all_that_it_promises(folder, prefix / "node_modules" / ".bin" / "pontoon")
        npx = ["npx", "--yes", "--prefix", prefix, "pontoon-mcp", "--version"]
        assert run(npx, env=settings, cwd=prefix).strip() == f"pontoon {VERSION}"


def the_npm_package_works_when_it_is_installed_for_all(dist: Dist, folder: pathlib.Path) -> None:
    with npm_installed(dist, folder, "--global") as (prefix, _):
        assert run([prefix / "bin" / "pontoon", "--version"]).strip() == f"pontoon {VERSION}"
        # Through a link to the link, as a user may have made it.
        (folder / "link").symlink_to(prefix / "bin" / "pontoon")
        assert run([folder / "link", "--version"]).strip() == f"pontoon {VERSION}"


def the_npm_launcher_becomes_the_program(dist: Dist, folder: pathlib.Path) -> None:
    """So signals, statuses, pipes and a kill -9 are the program's own, and nothing is left that has to pass them on."""
    with npm_installed(dist, folder) as (prefix, _):
        launcher = prefix / "node_modules" / ".bin"
        program = (prefix / "node_modules" / f"pontoon-mcp-linux-{CPU}" / "bin" / "pontoon").resolve()
        settings = environment(folder, launcher)
        for number, status in [(signal.SIGTERM, 0), (signal.SIGINT, 0)]:
            with serving(folder, settings) as (_, bridge, _):
                running = pathlib.Path(f"/proc/{bridge.pid}/exe").resolve()
                assert running == program, f"{running} runs, and not {program}"
                bridge.send_signal(number)
                assert ended(bridge) == status, bridge.returncode
        killed_with_nothing_left(folder, settings)
        words = [launcher / "pontoon", "call", "demo", "greet", "name=Ada \"$HOME\" * \\"]
        assert run(words, env=settings) == 'Hello, Ada "$HOME" * \\!\n'
        wrong = subprocess.run([launcher / "pontoon", "no-such-command"], env=settings, capture_output=True, text=True)
        assert wrong.returncode == 2 and "no-such-command" in wrong.stderr, wrong
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "greet", "arguments": {"name": "Ö" * 70_000}}}
        answered = subprocess.run([launcher / "pontoon", "demo"], input=json.dumps(message) + "\n", env=settings, capture_output=True, text=True)
        assert answered.returncode == 0 and json.loads(answered.stdout)["id"] == 1, answered.stderr


def killed_with_nothing_left(folder: pathlib.Path, settings: dict[str, str]) -> None:
    bridge = subprocess.Popen(
        ["pontoon", "serve", "--listen", "127.0.0.1:0"],
        cwd=folder, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert "listening" in bridge.stderr.readline()
    bridge.kill()
    assert ended(bridge) == -signal.SIGKILL
    bridge.stderr.close()


def the_npm_launcher_says_what_is_missing(dist: Dist, folder: pathlib.Path) -> None:
    with npm_installed(dist, folder, "--omit=optional") as (prefix, _):
        words = [prefix / "node_modules" / ".bin" / "pontoon", "--version"]
        ended = subprocess.run(words, capture_output=True, text=True)
        assert ended.returncode == 1 and f"pontoon-mcp-linux-{CPU} is not installed" in ended.stderr, ended


CHECKS = [
    the_checksums_are_those_of_all_files,
    the_version_is_the_same_everywhere,
    the_program_is_static_and_names_no_folder_of_its_builder,
    the_archive_has_pages_completions_and_licences,
    cargo_binstall_would_find_the_archive,
    the_archive_works_where_it_is_unpacked,
    the_debian_package_works_and_has_files_where_they_belong,
    the_wheel_works_in_an_empty_environment_and_leaves_nothing,
    the_npm_package_works_in_an_empty_prefix,
    the_npm_package_works_when_it_is_installed_for_all,
    the_npm_launcher_becomes_the_program,
    the_npm_launcher_says_what_is_missing,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--only", default="", help="only checks with this in their name")
    options = parser.parse_args()
    dist, failed, checks = Dist(options.dist), 0, [check for check in CHECKS if options.only in check.__name__]
    for check in checks:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="pontoon-"))
        try:
            check(dist, folder)
            print(f"ok   {check.__name__.replace('_', ' ')}", flush=True)
        except (AssertionError, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
            failed += 1
            print(f"FAIL {check.__name__.replace('_', ' ')}: {type(error).__name__}: {str(error)[-1500:]}", flush=True)
        finally:
            shutil.rmtree(folder)
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(1 if failed or not checks else 0)


if __name__ == "__main__":
    main()
