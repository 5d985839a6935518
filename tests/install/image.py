#!/usr/bin/env python3
"""The image `pontoon` of deploy/Dockerfile, built by buildah around the program that scripts/dist.sh made, and run by runc.

    tests/install/image.py --dist dist

No image is pulled: in place of the stage that compiles, which begins with an image of Rust, stands one with the same files,
made by the commands of that stage. Everything after it is the Dockerfile's own. Needs root, buildah, podman and runc, and says
so where it has not. Ends with `N passed, N failed`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = (REPOSITORY / "deploy" / "Dockerfile").read_text()
LONGEST_SECONDS = 120
USER = 10001
# Of the machine that runs this, limits and groups may be such that a container cannot have more.
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
WALLS = ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges"]


class Image:
    """The image in a store of its own, and what it takes to run it."""

    def __init__(self, folder: pathlib.Path, archive: pathlib.Path) -> None:
        self.folder = folder
        self.store = ["--root", str(folder / "store"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]
        self.podman = ["podman", *self.store, "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
        self.context = folder / "context"
        self.make_context(archive)

    def make_context(self, archive: pathlib.Path) -> None:
        """The stage `build` as an archive, because only so a folder keeps its owner on the way into an image."""
        root = self.folder / "image"
        program = root / "usr" / "local" / "bin" / "pontoon"
        program.parent.mkdir(parents=True)
        with tarfile.open(archive) as tar:
            [name] = [name for name in tar.getnames() if re.fullmatch(r"[^/]+/pontoon", name)]
            program.write_bytes(tar.extractfile(name).read())
        program.chmod(0o755)
        [folders] = re.findall(r"(?m)^RUN (install -d (?:.*\\\n)*.*\n)", DOCKERFILE)
        run(["bash", "-euc", folders.replace("/image/", f"{root}/")])
        self.context.mkdir()
        with tarfile.open(self.context / "image.tar", "w") as tar:
            tar.add(root, "image")
        example = self.context / "crates" / "pontoon" / "mcp-servers.example.json"
        example.parent.mkdir(parents=True)
        shutil.copy(REPOSITORY / "crates" / "pontoon" / example.name, example)
        [stage] = re.findall(r"(?m)^FROM scratch AS pontoon\n(?:[^\n#].*\n)+", DOCKERFILE)
        (self.context / "Dockerfile").write_text("FROM scratch AS build\nADD image.tar /\n" + stage)

    def build(self) -> None:
        words = ["buildah", *self.store, "bud", "--quiet", "--format", "docker", "--isolation", "chroot"]
        run([*words, "--target", "pontoon", "--tag", "pontoon", self.context])

    def run(self, *words: str, options: list[str]) -> list[str]:
        # Health is asked for by hand below: podman would have systemd do it, which need not run here.
        return [*self.podman, "run", "--rm", "--no-healthcheck", *LIMITS, *options, "pontoon", *words]


def run(words: list) -> str:
    ended = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
    return ended.stdout


# ---- checks ----


def it_is_built(image: Image) -> None:
    image.build()
    [told] = json.loads(run([*image.podman, "image", "inspect", "pontoon"]))
    settings = told["Config"]
    assert settings["User"] == f"{USER}:{USER}" and settings["Entrypoint"] == ["/usr/local/bin/pontoon"], settings
    program = (image.folder / "image" / "usr" / "local" / "bin" / "pontoon").stat().st_size
    assert told["Size"] < program + 200_000, "there is more in it than the program"


def it_calls_a_tool_within_walls_and_without_a_network(image: Image) -> None:
    options = [*WALLS, "--network", "none", "--tmpfs", "/tmp/mcpo-jobs"]
    assert run(image.run("call", "demo", "greet", "name=Ada", options=options)) == "Hello, Ada!\n"


@contextlib.contextmanager
def container(image: Image):
    """The image as it is served, but for the port. Gives its address, its key and its name."""
    name = f"pontoon-{os.getpid()}"
    options = ["--network", "host", "--name", name, "--env", "MCPO_LISTEN=127.0.0.1:0"]
    options += ["--env", "MCPO_API_KEY=a-key-of-the-test-of-the-image"]
    words = image.run(options=options)
    served = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        told = ""
        for line in served.stderr:
            told += line
            if found := re.search(r"listening on (http://127\.0\.0\.1:\d+)$", line.strip()):
                break
        assert found, told
        yield found[1], "a-key-of-the-test-of-the-image", name
        served.send_signal(signal.SIGTERM)
        served.stderr.read()
        assert served.wait(LONGEST_SECONDS) == 0, "it did not end in order"
    finally:
        if served.poll() is None:
            subprocess.run([*image.podman, "kill", name], capture_output=True)
            served.kill()
            served.wait()
        served.stderr.close()


def it_serves_calls_and_their_files_and_is_healthy(image: Image) -> None:
    with container(image) as (address, key, name):
        report = json.dumps({"title": "Sales", "lines": ["one"], "format": "md"}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{address}/mcpo/demo/make_report", report, headers)
        try:
            refused = urllib.request.urlopen(request, timeout=30).status
        except urllib.error.HTTPError as error:
            refused = error.code
        assert refused == 401, refused
        request.add_header("Authorization", f"Bearer {key}")
        answer = urllib.request.urlopen(request, timeout=30).read().decode()
        links = set(re.findall(rf"{address}/files/[0-9a-f-]+/Sales\.md", answer))
        assert len(links) == 1, answer
        fetch = urllib.request.Request(links.pop(), headers={"Authorization": f"Bearer {key}"})
        assert urllib.request.urlopen(fetch, timeout=30).read() == b"# Sales\n\n- one\n"
        [check] = re.findall(r'CMD \["/usr/local/bin/pontoon", "health"\]', DOCKERFILE[: DOCKERFILE.index("FROM node")])
        assert check
        health = run([*image.podman, "exec", name, "/usr/local/bin/pontoon", "health", "--url", address])
        assert health, "health says nothing"


CHECKS = [
    it_is_built,
    it_calls_a_tool_within_walls_and_without_a_network,
    it_serves_calls_and_their_files_and_is_healthy,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    options = parser.parse_args()
    missing = [name for name in ["buildah", "podman", "runc"] if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        print(f"skipped: it needs root, and {', '.join(missing) or 'all else is there'}\n0 passed, 0 failed")
        return
    [archive] = options.dist.glob(f"pontoon-*-{platform.machine()}-unknown-linux-gnu.tar.gz")
    folder, failed = pathlib.Path(tempfile.mkdtemp(prefix="pontoon-")), 0
    try:
        image = Image(folder, archive)
        for check in CHECKS:
            try:
                check(image)
                print(f"ok   {check.__name__.replace('_', ' ')}", flush=True)
            except (AssertionError, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"FAIL {check.__name__.replace('_', ' ')}: {type(error).__name__}: {str(error)[-1500:]}", flush=True)
    finally:
        shutil.rmtree(folder)
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
