"""Blocks that no scene runs: what is looked at instead, by the words of `table.APART`."""

import json
import pathlib
import re
import shlex
import subprocess
import tempfile

import words
from blocks import REPOSITORY, Block, commands

COMPOSE = {
    "up": ["-d", "--build", "--no-deps", "--scale"], "ps": [], "exec": ["-T"], "build": [], "kill": ["-s"], "restart": [], "logs": [],
}


def picture(block: Block, note: str, program: pathlib.Path) -> None:
    assert block.language in ("text", ""), "a drawing is a block of text"


def named_in(block: Block, note: str, program: pathlib.Path) -> None:
    name = block.first.split()[-1]
    assert f'"{name}"' in (REPOSITORY / note).read_text(), f"{note} does not know {name}"


def told_by(block: Block, note: str, program: pathlib.Path) -> None:
    """The test that compares it is there, with what is typed first: the command, or a whole line of a program."""
    test = "\n".join(file.read_text() for file in [REPOSITORY / note, *(REPOSITORY / note).parent.glob("terminal.py")])
    command = re.match(r"\$ pontoon (\w+)", block.first)
    assert (command[1] if command else block.first.removeprefix("$ ")) in test, f"{note} types nothing like {block.first}"


def scripts(block: Block, note: str, program: pathlib.Path) -> None:
    for line in commands(block.text):
        first, *rest = shlex.split(line)
        if first == "cargo":
            cargo(rest)
            continue
        script = REPOSITORY / first
        assert script.stat().st_mode & 0o100, f"{first} cannot be run"
        text = script.read_text()
        if script.suffix == ".sh":
            subprocess.run(["bash", "-n", script], check=True)
        for word in rest:
            if first.endswith("setup-tests.sh"):
                assert (REPOSITORY / "tests/interop/installs" / word).is_dir(), f"there is no install {word}"
            elif word.startswith("-"):
                assert word in text, f"{first} does not know {word}"
            elif first.endswith("test.sh"):
                assert f"run_{word}()" in text, f"{first} has no part {word}"


def cargo(rest: list[str]) -> None:
    if rest[:2] == ["deny", "check"]:
        assert (REPOSITORY / "deny.toml").exists()
    elif "fuzz" in rest:
        assert (REPOSITORY / "fuzz" / "fuzz_targets" / f"{rest[-1]}.rs").exists(), f"there is no fuzz target {rest[-1]}"
    else:
        assert rest[0] == "install", f"what is cargo {rest}?"


def benches(block: Block, note: str, program: pathlib.Path) -> None:
    for line in commands(block.text):
        given = shlex.split(re.sub(r"^\w+=(\"[^\"]*\"|\S*) +", "", line))
        if given[0] != "cargo":
            assert (REPOSITORY / given[0]).exists(), given[0]
            continue
        crate, bench = given[given.index("-p") + 1].replace("pontoon-", ""), given[given.index("--bench") + 1]
        folder = REPOSITORY / "crates" / crate / "benches"
        assert (folder / bench).exists() or (folder / f"{bench}.rs").exists(), f"{crate} has no bench {bench}"
        source = "\n".join(file.read_text() for file in folder.rglob("*.rs"))
        for word in given[given.index("--") + 1 :] if "--" in given else []:
            assert not word.startswith("--") or re.search(rf"\b{word[2:]}\b", source), f"the bench {bench} does not know {word}"


def rust(block: Block, note: str, program: pathlib.Path) -> None:
    """Each line stands, in this order, in code that `cargo test` compiles."""
    compiled = (REPOSITORY / "crates/host/tests/snippets.rs").read_text()
    at = 0
    for line in filter(None, map(str.strip, block.text.split("\n"))):
        found = compiled.find(line, at)
        assert found >= 0, f"crates/host/tests/snippets.rs does not have, after what came before: {line}"
        at = found + len(line)


def printed_by(block: Block, note: str, program: pathlib.Path) -> None:
    source = "\n".join(file.read_text() for file in (REPOSITORY / note).rglob("*.rs"))
    for word in block.first.split():
        assert word.lower() in source.lower(), f"{note} prints no {word}"


def report(block: Block, note: str, program: pathlib.Path) -> None:
    """A report of the doctor: its codes exist, and their words are those of the source."""
    known = (REPOSITORY / "docs/codes.md").read_text()
    for code in set(re.findall(r"\b[DHS]\d\d\d?\b", block.text)):
        assert code in known, f"docs/codes.md has no {code}"
    if note:
        kept = re.sub(r"\s+", " ", (REPOSITORY / note).read_text())
        lines = [line.strip() for line in block.text.split("\n") if line.strip().startswith(("✗", "!", "✓"))]
        missing = [line for line in lines if line[2:] not in kept and not re.search(r"\d", line)]
        assert len(missing) < len(lines) / 3, f"{note} has not: {missing}"


def parsed(text: str):
    """JSON with comments and commas at the end of lists, as configurations may be."""
    without = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda found: found[1] or "", text)
    return json.loads(re.sub(r",(\s*[}\]])", r"\1", without))


def configuration(block: Block, note: str, program: pathlib.Path) -> None:
    parsed(block.text)
    with tempfile.TemporaryDirectory() as name:
        file = pathlib.Path(name) / "mcp-servers.json"
        file.write_text(block.text)
        bare = {"PATH": "/usr/bin:/bin", "HOME": name, "MCPO_JOBS_DIR": f"{name}/jobs"}
        ended = subprocess.run([program, "check", "--config", file], capture_output=True, text=True, env=bare, cwd=name, timeout=20)
    said = ended.stdout + ended.stderr
    # Programs of a page need not be on this machine; everything else has to be right.
    mistakes = [line for line in re.findall(r"(?m)^  line \d+, column \d+: .*", said) if "the program `uvx` was not found" not in line]
    assert not mistakes and "configuration:" in said, said


def entry(block: Block, note: str, program: pathlib.Path) -> None:
    whole = json.dumps({"mcpServers": {"one": parsed(block.text.replace('"..."', '"true"'))}})
    configuration(Block(block.page, block.line, "json", whole), note, program)


def json_members(block: Block, note: str, program: pathlib.Path) -> None:
    assert set(parsed(block.text)) == set(note.split()), block.text


def workflow(block: Block, note: str, program: pathlib.Path) -> None:
    """Steps of a workflow: what runs is ours, and known."""
    for line in re.findall(r"run: (.*)", block.text):
        words.check_command(line, words.flags(program))
    assert re.search(r"(?m)^- (run|uses): ", block.text)


def pins(block: Block, note: str, program: pathlib.Path) -> None:
    """Versions that are named are those that the tests use."""
    texts = "\n".join(file.read_text() for name in note.split() for file in (REPOSITORY / "tests/interop/installs" / name).glob("*"))
    for package, version in re.findall(r"(@?[\w/-]+?)(?:==|@)(\d[\w.]*)", block.text):
        assert re.search(rf"{re.escape(package)}(==|.*)\"?{re.escape(version)}", texts), f"the tests use another {package} than {version}"


def containers(block: Block, note: str, program: pathlib.Path) -> None:
    compose = (REPOSITORY / "deploy/compose/compose.yaml").read_text()
    for line in commands(re.sub(r"(?m)^0 \* \* \* \* +", "", block.text)):
        given = shlex.split(line.replace("…", "URL"))
        if given[:2] == ["docker", "compose"]:
            rest = given[4:] if given[2] == "-f" else given[2:]
            word, *rest = rest
            assert word in COMPOSE, f"docker compose {word}"
            unknown = [it for it in rest if it.startswith("-") and it not in COMPOSE[word] and "pontoon" not in rest[: rest.index(it)]]
            assert not unknown or word == "exec" and "curl" in rest, f"docker compose {word} {unknown}"
            service = next((it for it in rest if re.search(rf"(?m)^  {re.escape(it)}:", compose)), None)
            assert service or not rest or set(rest) <= {"-d", "--build"}, f"compose.yaml has none of {rest}"
        elif given[0] == "helm":
            assert (REPOSITORY / given[3] / "Chart.yaml").exists() and given[4] == "--set", line
            values = (REPOSITORY / given[3] / "values.yaml").read_text()
            assert re.search(r"(?m)^secret:(\n .*)*\n +existing:", values) and given[5].startswith("secret.existing="), line
        elif given[0] == "cp":
            shipped = REPOSITORY / "deploy/compose" / given[1]
            assert shipped.exists(), f"there is no {shipped}"
        elif given[0] == "curl":
            subprocess.run(["bash", "-n", "-c", line], check=True)
        elif "pontoon" in given:
            pass
        else:
            assert given[0] in ("cd", "git", "chmod"), f"what is {line}?"
    for line in commands(re.sub(r"(?m)^0 \* \* \* \* +", "", block.text)):
        if found := re.search(r"(?<![\w/-])pontoon (?!\|).*", line):
            words.check_command(found[0], words.flags(program))


WAYS = {
    "picture": picture, "told by": told_by, "named in": named_in, "scripts": scripts, "benches": benches, "rust": rust, "printed by": printed_by, "report": report,
    "configuration": configuration, "entry": entry, "json members": json_members, "workflow": workflow, "pins": pins, "containers": containers,
}
