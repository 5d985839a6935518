"""Scenes: blocks of a page typed one after the other, as a reader would, by bash with a home, a network and processes of their own.

A scene prepares a folder, then its blocks run in one shell. A block of `sh` has to end well, each command of it; a block of `console` has to
print what it shows. What varies from run to run (ids, times, sizes) is compared by its form. What a page leaves out is written `...`.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from blocks import REPOSITORY, Block

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
SECONDS = 240
HOSTS = "127.0.0.1 localhost pontoon openwebui chat.example.org tools.example.org collector host\n::1 localhost\n"
# What an install of the cache stands for: `uvx PACKAGE` and `npx PACKAGE` run the same program at the version that is pinned there.
PYTHON_PROGRAMS = {"mcp-server-time": "py-time", "excel-mcp-server": "office-excel", "ppt_mcp_server": "office-powerpoint"}
VARIES = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", "TIME"),
    (r"\bup \d+h \d\dm \d\ds", "up TIME"),
    (r'"(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"', '"DAY"'),
    (r'("is_dst": )(true|false)', r"\1BOOL"),
    (r"\(\d+(\.\d+)? [kM]?B\b", "(SIZE"),
    (r"/files/[0-9a-f]{16,}(\.\.\.)?", "/files/KEY"),
    # The folder of jobs is the scene's own.
    (r"(?<= )/\S+/UUID/files/", "JOB/files/"),
]


@dataclasses.dataclass
class Step:
    """A block, and what is other than as it stands there."""

    block: Block
    before: str = ""
    after: str = ""
    # What commands may end with besides success, by how they begin.
    allowed: tuple[str, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()
    shows: str = ""
    # What varies in this block alone, as in `VARIES`.
    varies: tuple[tuple[str, str], ...] = ()


def prepare(folder: pathlib.Path, program: pathlib.Path) -> None:
    """Programs for the scene: the bridge, and those of the cache under the names that pages call them by."""
    shims = folder / "bin"
    for name in ["bin", "home", "work", "tmp"]:
        (folder / name).mkdir()
    (shims / "pontoon").symlink_to(program)
    live_app = program.parent / "live-app"
    if live_app.exists():
        (shims / "live-app").symlink_to(live_app)
    for name, install in PYTHON_PROGRAMS.items():
        (shims / name).symlink_to(CACHE / install / "bin" / name)
    write(shims / "python", f'#!/bin/sh\nexec "{CACHE}/py-mcp2/bin/python" "$@"\n')
    (shims / "node").symlink_to(CACHE / "node22" / "bin" / "node")
    write(shims / "uvx", UVX.replace("CACHE", str(CACHE)).replace("PYTHON", sys.executable))
    # Any server may stand for the reader's own.
    write(shims / "uv", '#!/bin/sh\ntest "$1 $2" = "run my-server" && exec pontoon demo\n')
    write(shims / "npx", NPX.replace("CACHE", str(CACHE)))
    (folder / "hosts").write_text(HOSTS)


def write(path: pathlib.Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


NPX = """#!/bin/sh
test "$1 $2" = "-y @modelcontextprotocol/server-everything" || exit 1
exec node CACHE/everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js
"""
UVX = '''#!PYTHON
"""`uvx`, with what the cache has: the program of a package, if the version that was asked for is the pinned one."""
import os, re, sys
words, asked, tool = sys.argv[1:], None, None
while words and words[0].startswith("--"):
    option = words.pop(0)
    if option in ("--from", "--with"):
        asked = words.pop(0) if option == "--from" else (words.pop(0), asked)[1]
    else:
        sys.exit(f"uvx: no option {option} here")
tool = words.pop(0)
package, _, version = (asked or tool).partition("==")
program = tool.partition("==")[0]
install = %r[program]
pins = open(f"REPOSITORY/tests/interop/installs/{install}/requirements.txt").read()
pinned = re.search(rf"(?mi)^{re.escape(package)}==(\\S+)", pins)
if not pinned or version and version != pinned[1]:
    sys.exit(f"uvx: {package}=={version} is not what tests/interop/installs/{install} pins")
os.execv(f"CACHE/{install}/bin/{program}", [program, *words])
'''.replace("%r", repr(PYTHON_PROGRAMS)).replace("REPOSITORY", str(REPOSITORY))


def play(program: pathlib.Path, steps: list[Step], prelude: str = "") -> dict[Block, str]:
    """What was wrong with each block; nothing where all is well."""
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as name:
        folder = pathlib.Path(name)
        prepare(folder, program)
        (folder / "scene.sh").write_text(script(folder, steps, prelude))
        environment = {
            "PATH": f"{folder}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "SCENE": str(folder), "REPOSITORY": str(REPOSITORY), "CACHE": str(CACHE),
            "CLAUDE": str(CACHE / "claude" / "bin" / "claude-2.1.325"), "MCPO_JOBS_DIR": str(folder / "jobs"), "LANG": "C.UTF-8", "TZ": "UTC",
        }
        apart = ["unshare", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        try:
            ended = subprocess.run([*apart, "bash", folder / "scene.sh"], cwd=folder / "work", env=environment, capture_output=True,
                                   text=True, errors="replace", timeout=SECONDS, stdin=subprocess.DEVNULL)
            end = ended.stderr[-600:]
        except subprocess.TimeoutExpired as late:
            end = f"the scene did not end within {SECONDS} s: {(late.stderr or b'')[-600:]!r}"
        return {step.block: verdict(folder, number, step, end) for number, step in enumerate(steps)}


LOOPBACK = """import fcntl, socket, struct
with socket.socket() as one:
    fcntl.ioctl(one, 0x8914, struct.pack("16sH14s", b"lo", 0x1 | 0x40, b""))"""


def script(folder: pathlib.Path, steps: list[Step], prelude: str) -> str:
    lines = [f"{sys.executable} -c '{LOOPBACK}'", "mount --bind $SCENE/hosts /etc/hosts", f". {HERE}/scene.sh", prelude]
    for number, step in enumerate(steps):
        text = step.block.text
        for old, new in step.replace:
            assert old in text, f"{step.block}: there is no {old!r} in it"
            text = text.replace(old, new)
        lines += [": >$SCENE/failed", f"export CLAUDE_HOME=$SCENE/claude-{number}; mkdir -p $CLAUDE_HOME", step.before]
        if step.block.language in ("sh", ""):
            (folder / f"{number}.sh").write_text(text + "\n" + step.after + "\n")
            lines.append(f". $SCENE/{number}.sh >$SCENE/{number}.out 2>&1")
        elif step.block.language == "console":
            for place, (command, _) in enumerate(exchanges(text)):
                (folder / f"{number}-{place}.sh").write_text(command + "\n")
                lines.append(f". $SCENE/{number}-{place}.sh >$SCENE/{number}-{place}.out 2>&1")
            lines += [step.after, f": >$SCENE/{number}.out"]
        else:
            (folder / f"{number}.text").write_text(text)
            lines.append(f"{{ {step.after}\n}} >$SCENE/{number}.out 2>&1")
        lines.append(f"mv $SCENE/failed $SCENE/{number}.failed; echo \"$SECONDS s after {number}\" >&2")
    return "\n".join(lines) + "\n"


def exchanges(text: str) -> list[tuple[str, str]]:
    """The commands of a block of `console`, and what each printed."""
    found = []
    for part in re.split(r"(?m)^\$ ", text)[1:]:
        lines = part.split("\n")
        count = 1 + next(n for n, line in enumerate(lines) if not line.endswith("\\"))
        found.append(("\n".join(lines[:count]), "\n".join(lines[count:])))
    return found


def verdict(folder: pathlib.Path, number: int, step: Step, end: str) -> str:
    failed = folder / f"{number}.failed"
    if not failed.exists():
        return f"it was not reached: {end}"
    lines = [line for line in failed.read_text().split("\n") if line and not any(word in line for word in step.allowed)]
    if lines:
        outs = "\n".join(path.read_text()[-1200:] for path in sorted(folder.glob(f"{number}*.out")))
        return "; ".join(lines[:4]) + "\n" + outs + tail(folder / "bridge.log")
    out = (folder / f"{number}.out").read_text()
    if not same(step.shows, out, varies=step.varies):
        return f"it does not show {step.shows!r}:\n{out[-1500:]}" + tail(folder / "bridge.log")
    if step.block.language == "console":
        for place, (command, expected) in enumerate(exchanges(step.block.text)):
            printed = (folder / f"{number}-{place}.out").read_text()
            if not same(expected, printed, whole=True, varies=step.varies):
                return f"$ {command}\nis said to print\n{expected}\nand printed\n{printed[-3000:]}"
    return ""


def tail(log: pathlib.Path) -> str:
    return "\nthe bridge:\n" + log.read_text()[-1000:] if log.exists() else ""


def same(expected: str, printed: str, whole: bool = False, varies: tuple[tuple[str, str], ...] = ()) -> bool:
    """Whether it was printed, but for spaces and what varies; `...` stands for anything."""
    for pattern, form in [*VARIES, *varies]:
        expected, printed = re.sub(pattern, form, expected), re.sub(pattern, form, printed)
    expected, printed = re.sub(r"\s+", "", expected), re.sub(r"\s+", "", printed)
    pattern = ".*".join(map(re.escape, expected.split("...")))
    return bool(re.fullmatch(pattern, printed, re.S) if whole else re.search(pattern, printed, re.S))
