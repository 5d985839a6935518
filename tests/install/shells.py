#!/usr/bin/env python3
"""The completions and the manual pages of `pontoon`, before the shells and the readers that use them.

    tests/install/shells.py --pontoon target/debug/pontoon

bash, zsh and fish complete what is typed on a terminal; man and mandoc read every page. What is not there is skipped,
and a line says so. Ends with `N passed, N failed`.
"""

import argparse
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

from terminal import environment

LONGEST_SECONDS = 30


class Skip(Exception):
    """A check cannot be made here."""


class Set:
    """The program, and what it says of itself."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path) -> None:
        self.program = program
        self.folder = folder
        self.settings = environment(folder, folder / "bin") | {"TERM": "dumb", "MANWIDTH": "80"}
        (folder / "bin").mkdir()
        (folder / "bin" / "pontoon").symlink_to(program)
        self.pages = folder / "man"

    def run(self, *words, status: int = 0) -> str:
        ended = subprocess.run(words, env=self.settings, cwd=self.folder, capture_output=True, text=True, timeout=LONGEST_SECONDS)
        assert ended.returncode == status, f"{words}: {ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr

    def script(self, shell: str, name: str) -> pathlib.Path:
        file = self.folder / name
        file.write_text(self.run("pontoon", "completions", shell))
        return file

    def all_pages(self) -> list[pathlib.Path]:
        if not self.pages.exists():
            self.run("pontoon", "man", self.pages, "--date", "2026-11-19")
        assert (found := sorted(self.pages.glob("*.1"))), "there are no pages"
        return found

    def shell(self, name: str) -> str:
        if not (found := shutil.which(name)):
            raise Skip(f"{name} is not installed")
        return found


def tab(words: list[str], settings: dict[str, str], begin: str, typed: str, completed: str) -> None:
    """Types on a terminal of this shell and presses the tabulator, until the line is what it should become."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(words[0], words, settings)
    said, ready = "", "ready-to-type"
    try:
        # In two parts, so that its echo is not taken for its outcome.
        os.write(terminal, f"{begin}; echo ready-to''-type\n".encode())
        said = read_until(terminal, ready)
        os.write(terminal, f"{typed}\t".encode())
        said = read_until(terminal, completed)
    except TimeoutError as error:
        raise AssertionError(f"{typed!r} did not become {completed!r}: {error}") from None
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


def read_until(terminal: int, expected: str) -> str:
    said, last = "", time.monotonic() + LONGEST_SECONDS
    while expected not in said:
        if not select.select([terminal], [], [], max(0, last - time.monotonic()))[0]:
            raise TimeoutError(repr(said))
        said += os.read(terminal, 4096).decode(errors="replace")
    return said


# ---- completions ----


def bash_completes(it: Set) -> None:
    script = it.script("bash", "pontoon.bash")
    it.run("bash", "-n", script)
    words = ["bash", "--norc", "--noprofile", "-i"]
    tab(words, it.settings, f"PS1='$ '; source {script}", "pontoon se", "pontoon serve ")
    tab(words, it.settings, f"PS1='$ '; source {script}", "pontoon completions z", "pontoon completions zsh ")
    tab(words, it.settings, f"PS1='$ '; source {script}", "pontoon serve --conf", "pontoon serve --config ")


def zsh_completes(it: Set) -> None:
    zsh = it.shell("zsh")
    (it.folder / "zfunc").mkdir()
    it.run(zsh, "-n", it.script("zsh", "zfunc/_pontoon"))
    begin = "PS1='$ '; unsetopt zle_bracketed_paste; fpath=(zfunc $fpath); autoload -Uz compinit; compinit -u -D"
    os.chdir(it.folder)
    tab([zsh, "-f", "-i"], it.settings, begin, "pontoon se", "pontoon serve")


def fish_completes(it: Set) -> None:
    fish = it.shell("fish")
    script = it.script("fish", "pontoon.fish")
    it.run(fish, "--no-execute", script)
    said = it.run(fish, "--no-config", "--command", f"source {script}; complete --do-complete 'pontoon se'")
    assert re.findall(r"(?m)^(\w+)\t", said) == ["serve"], said


def other_shells_have_a_script(it: Set) -> None:
    for shell, word in [("elvish", "set edit:completion"), ("powershell", "Register-ArgumentCompleter")]:
        assert word in it.run("pontoon", "completions", shell)
    wrong = it.run("pontoon", "completions", "csh", status=2)
    assert all(shell in wrong for shell in ["bash", "elvish", "fish", "powershell", "zsh"]), wrong


# ---- manual pages ----


def every_command_has_a_page(it: Set) -> None:
    told = it.run("pontoon", "man", it.pages, "--date", "2026-11-19")
    assert re.match(rf"(\d+) pages in {it.pages}\n$", told)[1] == str(len(list(it.pages.iterdir()))), told
    commands = re.search(r"(?s)\nCommands:\n(.*?)\n\n", it.run("pontoon", "--help"))[1]
    names = re.findall(r"(?m)^  ([a-z]+)", commands)
    assert len(names) > 10 and "man" not in names, names
    for name in [name for name in names if name != "help"]:
        page = (it.pages / f"pontoon-{name}.1").read_text()
        examples = it.run("pontoon", name, "--help").partition("\nExamples:\n")[2].partition("\n\n")[0]
        for line in examples.splitlines():
            shown = line.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").strip()
            assert shown in page, f"{name}: {line}"


def mandoc_finds_nothing_wrong(it: Set) -> None:
    mandoc = it.shell("mandoc")
    for page in it.all_pages():
        ended = subprocess.run([mandoc, "-T", "lint", "-W", "warning", page], capture_output=True, text=True)
        # Of what clap_mangen writes between paragraphs one line is too many, and nothing is lost.
        told = [line for line in ended.stdout.splitlines() if "skipping paragraph macro: br" not in line]
        assert not told, "\n".join(told)


def man_shows_them(it: Set) -> None:
    man = it.shell("man")
    for page in it.all_pages():
        ended = subprocess.run([man, "--warnings", "-l", page], env=it.settings, capture_output=True, text=True)
        assert ended.returncode == 0 and not ended.stderr, f"{page.name}: {ended.stderr}"
    shown = it.run(man, "-l", it.pages / "pontoon-call.1")
    shown = re.sub(r".\x08", "", shown)
    for part in ["pontoon-call - Call a tool of a server", "EXAMPLES", "pontoon call demo greet name=Ada\n", "2026-11-19"]:
        assert part in shown, shown


CHECKS = [
    bash_completes,
    zsh_completes,
    fish_completes,
    other_shells_have_a_script,
    every_command_has_a_page,
    mandoc_finds_nothing_wrong,
    man_shows_them,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    options = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="pontoon-") as folder:
        it = Set(options.pontoon, pathlib.Path(folder).resolve())
        for check in CHECKS:
            try:
                check(it)
                outcomes.append(("ok", ""))
            except Skip as why:
                outcomes.append(("skip", f": {why}"))
            except (AssertionError, OSError, TypeError, subprocess.SubprocessError) as error:
                outcomes.append(("FAIL", f": {type(error).__name__}: {str(error)[-1500:]}"))
            print(f"{outcomes[-1][0]:<5}{check.__name__.replace('_', ' ')}{outcomes[-1][1]}", flush=True)
        os.chdir("/")
    count = [outcome for outcome, _ in outcomes].count
    print(f"{count('skip')} could not be made here")
    print(f"{count('ok')} passed, {count('FAIL')} failed")
    sys.exit(1 if count("FAIL") else 0)


if __name__ == "__main__":
    main()
