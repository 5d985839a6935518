"""The pages, and what stands in them between marks: blocks of code, spans of code, headings and links.

A block is fenced, or indented by four spaces after an empty line. Standard library only.
"""

import dataclasses
import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PATTERNS = ["README.md", "README.ja.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md", "docs/*.md", "deploy/**/README.md", "examples/**/README.md"]


@dataclasses.dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    @property
    def first(self) -> str:
        return self.text.strip().split("\n")[0].strip()

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.first[:60]}"


@dataclasses.dataclass(frozen=True)
class Page:
    name: str
    text: str
    blocks: tuple[Block, ...]
    # The text without its blocks, so that what is left is prose.
    prose: str

    def spans(self) -> list[str]:
        """The code within the prose, each on one line, as a reader sees it."""
        found = re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", self.prose, re.S)
        return [re.sub(r"\s+", " ", text.strip().replace(r"\|", "|")) for _, text in found]

    def anchors(self) -> set[str]:
        """What a link to a heading of this page may name, as GitHub makes it."""
        found = set()
        for heading in re.findall(r"(?m)^#+ (.+)$", self.prose):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower().strip()
            found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
        return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', self.prose))

    def links(self) -> list[str]:
        return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(`+)[^`]+\1", "", self.prose) + "\n" + self.linked_code())

    def linked_code(self) -> str:
        """Links whose text is code, which is left out above with the code."""
        return "\n".join(re.findall(r"\[`[^`]+`\]\([^)\s]+\)", self.prose))


def pages() -> list[Page]:
    files = [file for pattern in PATTERNS for file in sorted(REPOSITORY.glob(pattern))]
    return [read(str(file.relative_to(REPOSITORY)), file.read_text()) for file in files]


def read(name: str, text: str) -> Page:
    lines, blocks, prose, at = text.split("\n"), [], [], 0
    while at < len(lines):
        fence = re.match(r"( *)(`{3,})(\S*)\s*$", lines[at])
        if fence:
            end = next(n for n in range(at + 1, len(lines)) if lines[n].strip() == fence[2])
            body = [line[len(fence[1]) :] for line in lines[at + 1 : end]]
            blocks.append(Block(name, at + 1, fence[3], "\n".join(body)))
            at = end + 1
        elif lines[at].startswith("    ") and at and not lines[at - 1].strip() and not in_list(lines, at):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            body = "\n".join(line[4:] for line in lines[at:end]).rstrip()
            blocks.append(Block(name, at + 1, "", body))
            at = end
        else:
            prose.append(lines[at])
            at += 1
    return Page(name, text, tuple(blocks), "\n".join(prose))


def in_list(lines: list[str], at: int) -> bool:
    """Whether the indented line goes on with an item of a list above it."""
    above = next((line for line in reversed(lines[:at]) if line.strip() and not line.startswith("  ")), "")
    return bool(re.match(r"([-*]|\d+\.) ", above))


def commands(text: str) -> list[str]:
    """The command lines of a block of shell, without comments, each with its continuation."""
    joined = re.sub(r"\\\n\s*", " ", text)
    found = []
    for line in joined.split("\n"):
        line = re.sub(r"(^|\s+)#( .*)?$", "", line).strip()
        if line:
            found += [part.strip() for part in re.split(r"\s*&&\s*", line)]
    return found
