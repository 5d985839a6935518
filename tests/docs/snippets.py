#!/usr/bin/env python3
"""Every block of code of the pages, and every command, flag, variable, metric and link in them, is what it is said to be.

    tests/docs/snippets.py --pontoon target/release/pontoon [--only WORD]

Blocks are run in scenes (`table.SCENES`) or checked in a way of their own (`table.APART`); one that is in neither fails. Needs what
scripts/test.sh sets up for the part `docs`; nothing leaves the machine. Ends with `N passed, N failed`.
"""

import argparse
import concurrent.futures
import pathlib
import sys
import time

import apart
import scenes
import table
import words
from blocks import Block, Page, pages


def find(named: table.Named, blocks: list[Block]) -> Block | None:
    """The block that is meant; where several begin so, `nth` or `exact` chooses."""
    found = [block for block in blocks if block.page == named.page and block.first.startswith(named.begins)]
    if named.options.get("exact"):
        found = [block for block in found if block.first == named.begins]
    return found[named.options.get("nth", 0)] if len(found) > named.options.get("nth", 0) else None


def step_of(named: table.Named, block: Block, number: int) -> scenes.Step:
    known = {key: value for key, value in named.options.items() if key in ("before", "allowed", "replace", "shows", "varies")}
    after = named.options.get("after", "").replace("{n}", str(number))
    step = scenes.Step(block, after=after, **known)
    if named.options.get("is_output"):
        step.shows = block.text
        for old, new in named.options.get("replace_shown", ()):
            step.shows = step.shows.replace(old, new)
    return step


def play(name: str, scene: dict, blocks: list[Block], program: pathlib.Path) -> tuple[dict[Block, str], list[str]]:
    found = [(named, find(named, blocks)) for named in scene["steps"]]
    missing = [f"table.py, {name}: {named.page} has no block that begins with {named.begins!r}" for named, block in found if not block]
    steps = [step_of(named, block, number) for number, (named, block) in enumerate((it for it in found if it[1]))]
    return scenes.play(program, steps, scene.get("prelude", "")), missing


def check_apart(blocks: list[Block], program: pathlib.Path) -> tuple[dict[Block, str], list[str]]:
    results, missing = {}, []
    for page, begins, way, note in table.APART:
        found = [block for block in blocks if block.page == page and (block.first == begins if begins == "{" else block.first.startswith(begins))]
        if not found:
            missing.append(f"table.py: {page} has no block that begins with {begins!r}")
        for block in found:
            results.setdefault(block, "")
            try:
                apart.WAYS[way](block, note, program)
            except Exception as fault:
                results[block] = f"{way}: {fault!r}"[:1500]
    return results, missing


def look(all_pages: list[Page], program: pathlib.Path, only: str) -> dict[str, str]:
    """What was looked at, and what is wrong with each."""
    # What README.ja.md has is compared with README.md.
    blocks = [block for page in all_pages for block in page.blocks if page.name != "README.ja.md"]
    results, missing = {}, []
    in_scenes = {find(named, blocks) for scene in table.SCENES.values() for named in scene["steps"]}
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        playing = {name: pool.submit(play, name, scene, blocks, program) for name, scene in table.SCENES.items() if only in name}
        parts = [future.result() for future in playing.values()]
    parts.append(check_apart([block for block in blocks if block not in in_scenes], program))
    for found, lacking in parts:
        results |= {str(block): fault for block, fault in found.items()}
        missing += lacking
    if not only:
        for block in blocks:
            results.setdefault(str(block), "nothing checks this block: name it in tests/docs/table.py, in a scene or apart")
        for name, check in words.CHECKS.items():
            results[name] = "\n".join(check(all_pages, program))
    results["table.py names blocks that are there"] = "\n".join(missing)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="scenes with this word in their name")
    given = parser.parse_args()
    began = time.monotonic()
    results = look(pages(), given.pontoon.resolve(), given.only)
    for name, fault in results.items():
        print(f"FAIL {name}\n     " + fault.replace("\n", "\n     ") if fault else f"ok   {name}")
    failed = sum(1 for fault in results.values() if fault)
    print(f"in {time.monotonic() - began:.0f} s")
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
