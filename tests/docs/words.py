"""Words of the pages that mean something: commands and flags, variables, metrics, links, and messages that are quoted."""

import functools
import pathlib
import re
import shlex
import subprocess

from blocks import REPOSITORY, Page, commands

# Flags of other programs, and the first words of the programs that pages name together with their flags.
OTHERS = {
    "--transport": "claude mcp add", "--mcp-config": "claude", "--debug": "claude", "--isolated": "Playwright", "--executable-path": "Playwright",
    "--headless": "Playwright", "--no-sandbox": "Playwright", "--disable-dev-shm-usage": "Chromium", "--allowed-origins": "Playwright",
    "--long": "scripts/test.sh", "--stateful": "supergateway", "--outputTransport": "supergateway", "--target": "cargo, docker build",
    "--release": "cargo", "--bench": "cargo", "--only": "the bench", "--server": "the bench, pontoon jobs", "--pontoon": "the bench", "--quick": "the bench",
    "--path": "cargo install", "--locked": "cargo", "--origin": "live-app", "--user": "an example of a server's own", "--write": "tests/interop",
    "--ignore-scripts": "npm", "--json": "curl, pontoon", "--no-deps": "docker compose", "--cert": "curl",
}
# Flags that need no word in the pages, and why.
UNNAMED = {
    "--help": "every program has it", "--version": "every program has it",
}
# What no help names, because no person types it.
HIDDEN = {"ipc": {"--spawner"}}
# Variables of other programs, of tests, and of what deploy/ has besides the bridge.
OTHER_VARIABLES = {
    "PONTOON_BIN": "crates/host", "PONTOON_TRANSPORT": "crates/host", "MCPO_MEMORY": "deploy/compose", "PONTOON_TEST_CACHE": "scripts",
    "MCPO_PUBLIC_HOST": "deploy/compose", "MCPO_TIMOUT": "a slip in a test", "MCPO_X": "a name in a test", "MCPO_WORKDIR": "what a server sees", "MCPO_JOB_ID": "what a server sees",
    "PONTOON_TOKEN": "read by commands that reach a server: docs/quick-start.md",
}


@functools.cache
def flags(program: pathlib.Path) -> dict[str, set[str]]:
    """The flags of each command, as its help names them."""
    def help_of(*command: str) -> str:
        return subprocess.run([program, *command, "--help"], capture_output=True, text=True, timeout=20).stdout

    names = re.findall(r"(?m)^  (\w[\w-]*) ", help_of().split("Commands:")[1].split("Options:")[0])
    found = {}
    for name in names:
        if name == "help":
            continue
        text = help_of(name)
        inner = re.search(r"(?m)^Commands:\n((?:  .*\n)+)", text)
        for sub in re.findall(r"(?m)^  (\w[\w-]*) ", inner[1]) if inner else []:
            text = text.split("Examples:")[0] + (help_of(name, sub) if sub != "help" else "")
        found[name] = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", text.split("Examples:")[0]))
        if inner:
            found[name] |= {sub for sub in re.findall(r"(?m)^  (\w[\w-]*) ", inner[1])}
    return found


def check_command(line: str, known: dict[str, set[str]]) -> None:
    """A command line of `pontoon ...` has a command and flags that exist."""
    line = re.split(r"\s[|>]|;", line)[0]
    try:
        given = shlex.split(line.replace("…", "..."))
    except ValueError:
        given = line.split()
    if len(given) < 2 or given[1] in ("...", "CMD") or given[1].isdigit():
        return
    command = given[1]
    if command.startswith("-"):
        assert command in ("--help", "--version"), f"pontoon {command}"
        return
    assert command in known, f"pontoon has no command {command}"
    for word in given[2:]:
        if word == "--":
            break
        if re.match(r"--?[A-Za-z]", word):
            name = word.split("=")[0]
            assert name in known[command] | HIDDEN.get(command, set()), f"pontoon {command} has no {name}"


def commands_exist(all_pages: list[Page], program: pathlib.Path) -> list[str]:
    faults = []
    for page in all_pages:
        lines = [span for span in page.spans() if re.match(r"(\w+=\S+ )*pontoon( |$)", span)]
        for block in page.blocks:
            if block.language in ("sh", "console", ""):
                typed = "\n".join(re.findall(r"(?m)^\$ (?:.*\\\n)*.*", block.text)) if block.language == "console" else block.text
                lines += [found for line in commands(typed) for found in re.findall(r"(?:^|\$ |-- |sudo )((?:\w+=\S+ )*pontoon .*)", line)]
        for line in lines:
            try:
                check_command(re.sub(r"^(\w+=\S+ )+", "", line).replace("[", "").replace("]", ""), flags(program))
            except AssertionError as fault:
                faults.append(f"{page.name}: `{line}`: {fault}")
    return faults


def flags_exist(all_pages: list[Page], program: pathlib.Path) -> list[str]:
    """Flags within the prose are of a command of ours, or of a program that is known."""
    ours = set().union(*flags(program).values())
    faults = []
    for page in all_pages:
        for span in page.spans():
            if re.match(r"(--[a-z]|-[a-z]\b)", span):
                name = re.split(r"[\s=:]", span)[0]
                if name not in ours and name not in OTHERS:
                    faults.append(f"{page.name}: `{span}`: nothing has this flag")
    return faults


def flags_are_told(all_pages: list[Page], program: pathlib.Path) -> list[str]:
    text = "\n".join(page.text for page in all_pages)
    return [
        f"pontoon {command} {flag} is on no page, and not among those that need not be"
        for command, names in flags(program).items()
        for flag in sorted(names)
        if flag.startswith("--") and flag not in UNNAMED and not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text)
    ]


def variables(all_pages: list[Page], program: pathlib.Path) -> list[str]:
    """Variables of the pages are on the page of configuration, and those that the sources read are there as well."""
    reference = next(page.text for page in all_pages if page.name == "docs/configuration.md")
    known = set(re.findall(r"\b(?:MCPO|PONTOON)_[A-Z][A-Z0-9_]*[A-Z0-9]\b", reference)) | set(OTHER_VARIABLES)
    faults = []
    for page in all_pages:
        for name in sorted(set(re.findall(r"\b(?:MCPO|PONTOON)_[A-Z][A-Z0-9_]*[A-Z0-9]\b", page.text)) - known):
            faults.append(f"{page.name}: docs/configuration.md has no {name}")
    table = set(re.findall(r"(?m)^\| `((?:MCPO|PONTOON)_\w+)` \|", reference))
    read = set(re.findall(r'"((?:MCPO)_[A-Z0-9_]+)"', source()))
    faults += [f"the source reads {name}, and docs/configuration.md has it not" for name in sorted(read - known - {name + "_FILE" for name in table})]
    faults += [f"docs/configuration.md has {name}, and the source reads it not" for name in sorted(table) if name not in source()]
    return faults


@functools.cache
def source() -> str:
    """What the crates are made of without their tests, with the lines of a text in one."""
    files = [file for file in sorted((REPOSITORY / "crates").glob("*/src/**/*.rs"))]
    text = "\n".join(file.read_text() for file in files)
    text = re.sub(r"\\\n\s*", "", text)
    return text.replace(r"\"", '"')


def metrics(all_pages: list[Page], program: pathlib.Path) -> list[str]:
    """Metrics that pages and alert rules name are metrics of the bridge."""
    texts = {page.name: page.text for page in all_pages}
    made = source()
    faults = []
    for name, text in texts.items():
        for metric in sorted(set(re.findall(r"`(pontoon_[a-z_]+[a-z])(?:\{[^`]*)?`", text))):
            base = re.sub(r"_(bucket|sum|count)$", "", metric)
            if base not in made and base.removeprefix("pontoon_") not in made:
                faults.append(f"{name}: there is no metric {metric}")
    return faults


def links(all_pages: list[Page], program: pathlib.Path) -> list[str]:
    """Links between the pages lead to files that are there, and to headings that they have."""
    by_name = {page.name: page for page in all_pages}
    faults = []
    for page in all_pages:
        here = (REPOSITORY / page.name).parent
        for link in page.links():
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (here / path).resolve() if path else REPOSITORY / page.name
            if not target.exists():
                faults.append(f"{page.name}: {link}: there is no such file")
                continue
            other = by_name.get(str(target.relative_to(REPOSITORY)))
            if anchor and other and anchor not in other.anchors():
                faults.append(f"{page.name}: {link}: that page has no such heading")
    return faults


def paths(all_pages: list[Page], program: pathlib.Path) -> list[str]:
    """Files of the repository that prose names are there."""
    faults = []
    for page in all_pages:
        for span in page.spans():
            if re.fullmatch(r"(tests|scripts|deploy|crates|examples|docs|fuzz)/[\w./@-]+", span):
                there = [REPOSITORY / span, REPOSITORY / (span + ".rs"), REPOSITORY / page.name / ".." / span]
                if not any(path.exists() for path in there):
                    faults.append(f"{page.name}: there is no {span}")
    return faults


def messages(all_pages: list[Page], program: pathlib.Path) -> list[str]:
    """What docs/troubleshooting.md quotes is said by the bridge: a span of three words or more. `...` stands for what varies."""
    (page,) = [page for page in all_pages if page.name == "docs/troubleshooting.md"]
    said = re.sub(r"\s+", " ", source())
    faults, quoted = [], 0
    for span in page.spans():
        if span.count(" ") < 2 or re.match(r"(\w+=\S+ )*(pontoon|curl|docker|systemctl|journalctl|kubectl|ss|df|grep) ", span):
            continue
        quoted += 1
        for part in re.split(r"\s*\.\.\.\s*", span):
            if len(part) > 3 and part not in said:
                faults.append(f"docs/troubleshooting.md: the source has no {part!r}")
    return faults if quoted > 20 else [*faults, f"only {quoted} messages are quoted: is the page written otherwise now?"]


def alerts(all_pages: list[Page], program: pathlib.Path) -> list[str]:
    """What the alert rules name of the pages is there, and each alert has its section."""
    rules = (REPOSITORY / "deploy" / "prometheus" / "rules.yml").read_text()
    by_name = {page.name: page for page in all_pages}
    named = re.findall(r"(docs/[\w-]+\.md)#([\w-]+)", rules)
    sections = [("docs/troubleshooting.md", name.lower()) for name in re.findall(r"- alert: (\w+)", rules)]
    return [
        f"deploy/prometheus/rules.yml: {name}#{anchor}: there is no such heading"
        for name, anchor in named + sections
        if name not in by_name or anchor not in by_name[name].anchors()
    ]


def translated(all_pages: list[Page], program: pathlib.Path) -> list[str]:
    """README.ja.md has the blocks of README.md, and as many headings of each depth in the same order."""
    english, japanese = [next(page for page in all_pages if page.name == name) for name in ("README.md", "README.ja.md")]
    code = lambda page: [block.text for block in page.blocks if block.language not in ("text", "jsonc")]
    bare = lambda page: [re.sub(r" +# .*", "", text) for text in code(page)]
    depths = lambda page: re.findall(r"(?m)^(#+) ", page.prose)
    config = lambda page: [re.sub(r"\s*//(?!\w).*", "", block.text) for block in page.blocks if block.language == "jsonc"]
    pairs = zip(bare(english) + config(english), bare(japanese) + config(japanese))
    faults = [f"README.ja.md: a block is not that of README.md:\n{two}" for one, two in pairs if one != two]
    if len(english.blocks) != len(japanese.blocks):
        faults.append(f"README.ja.md has {len(japanese.blocks)} blocks, README.md {len(english.blocks)}")
    if depths(english) != depths(japanese):
        faults.append("README.ja.md has not the headings of README.md")
    return faults


CHECKS = {
    "commands of pages exist": commands_exist, "flags of pages exist": flags_exist, "every flag is on a page": flags_are_told,
    "variables are those of docs/configuration.md": variables, "metrics exist": metrics, "links lead somewhere": links, "files that are named are there": paths,
    "messages that are quoted are said": messages, "what alert rules name is there": alerts, "README.ja.md is README.md": translated,
}
