"""Build the documentation site in build/site. Any complaint of the builder is an error, and so is a page that looks
different there.

Usage: ``python scripts/site.py``.

The pages are files of the whole repository. They are copied to build/pages under the same paths, so that a link
between two of them is right in the repository and on the site. `[project.extra.search]` in zensical.toml says which
pages the search leaves out, and which questions lead to a page that asks them in other words.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
PATTERNS = (
    "*.md",
    "docs/**/*.md",
    "docs/**/*.svg",
    "docs/**/*.webp",
    "docs/grafana/*",
    "docs/node-red/*",
    "docs/reference/contract/*.txt",
    "benchmarks/*.md",
    "apps/*/README.md",
    "src/leadsman/tools/cli/templates/*",
)
FINE = ("Build started", "Build finished", "No issues found")
"""How the lines begin that a build without a complaint writes."""
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
"""What a page begins with that the search leaves out."""
WIDE = "---\nhide: [toc]\n---\n\n"
"""What the first page begins with: two screens need no table of contents, and have its room."""
GUIDE = re.compile(
    r"(docs/(how-to/.*|explanation/.*|quickstart|tutorial|what-it-does|what-it-will-not-do)|apps/.*)\.html$"
)
"""The pages that people read as a whole."""
GENERATED = re.compile(r"^::: ", re.MULTILINE)
"""What a page has that is made from docstrings."""

Outline = list[tuple[str, int, str]]
"""The headings, list items, code blocks, tables and quotations of a page: each with its tag, how deep in lists it is,
and the beginning of its code."""


def search_settings() -> dict[str, Any]:
    """What zensical.toml says of the search."""
    settings: dict[str, Any] = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["extra"]["search"]
    return settings


def gather() -> None:
    """Copy the pages, and what they link to, to build/pages."""
    left_out = search_settings()["left_out"]
    shutil.rmtree(PAGES, ignore_errors=True)
    for pattern in PATTERNS:
        for path in ROOT.glob(pattern):
            name = path.relative_to(ROOT).as_posix()
            target = PAGES / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if any(fnmatch(name, each) for each in left_out):
                target.write_text(UNSEARCHED + path.read_text())
            elif name == "README.md":
                target.write_text(WIDE + path.read_text())
            else:
                shutil.copyfile(path, target)


def complaints(written: str) -> list[str]:
    """The lines that a build without a complaint would not have written."""
    return [line for line in written.splitlines() if line.strip() and not line.startswith(FINE)]


def address(page: str) -> str:
    """Where a page of the repository is on the site."""
    return re.sub(r"(README)?\.md$", lambda found: "index.html" if found[1] else ".html", page)


def join_sections() -> None:
    """Give the search result of each guide the words of all its sections. The search finds only what has all words of a
    question, and the answer may have them in several sections."""
    path = SITE / "search.json"
    index = json.loads(path.read_text())
    texts: dict[str, list[str]] = {}
    for item in index["items"]:
        texts.setdefault(item["location"].partition("#")[0], []).append(f"{item['title']} {item['text']}")
    for item in index["items"]:
        if GUIDE.match(item["location"]) and "#" not in item["location"]:
            item["text"] = " ".join([item["text"], *texts[item["location"]][1:]])
    path.write_text(json.dumps(index, ensure_ascii=False))


def add_questions(questions: dict[str, list[str]]) -> None:
    """Give each question a search result of its own, which leads to the page or the section with its answer. Of results
    that fit equally well, the first of the index comes first: questions, guides, and the reference.

    Raises:
        SystemExit: If a page or a section is not on the site, or not searched.
    """
    path = SITE / "search.json"
    index = json.loads(path.read_text())
    items = {item["location"]: item for item in index["items"]}
    found: list[dict[str, Any]] = []
    for target, asked in questions.items():
        page, mark, section = target.partition("#")
        answer = items.get(f"{address(page)}{mark}{section}")
        if answer is None:
            raise SystemExit(f"zensical.toml: the search does not know {target}")
        found += [{**answer, "title": question, "text": f"<p>{question}: {answer['title']}</p>"} for question in asked]
    index["items"] = found + sorted(index["items"], key=lambda item: item["location"].startswith("docs/reference/"))
    path.write_text(json.dumps(index, ensure_ascii=False))


def outline_of(markdown: str) -> Outline:
    """The outline of a page as CommonMark defines it, which is how the repository shows it."""
    outline: Outline = []
    depth = 0
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.type in ("bullet_list_open", "ordered_list_open"):
            depth += 1
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            depth -= 1
        elif token.type in ("fence", "code_block"):
            outline.append(("pre", depth, beginning(token.content)))
        elif token.type in ("list_item_open", "table_open", "heading_open", "blockquote_open"):
            outline.append((token.tag, depth, ""))
    return outline


def beginning(code: str) -> str:
    """Enough of a code block to know it by."""
    return " ".join(code.split())[:50]


class Built(HTMLParser):
    """The outline of a page as the site shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.outline: Outline = []
        self._shown = False
        self._depth = 0
        self._code: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element, unless it is beside the text."""
        self._shown |= tag == "article"
        if not self._shown:
            return
        if tag in ("ul", "ol"):
            self._depth += 1
        elif tag == "pre":
            self._code = ""
        elif tag in ("li", "table", "blockquote") or re.fullmatch("h[1-6]", tag):
            self.outline.append((tag, self._depth, ""))

    def handle_endtag(self, tag: str) -> None:
        """Note the end of a list, or a whole code block."""
        if tag == "article":
            self._shown = False
        elif self._shown and tag in ("ul", "ol"):
            self._depth -= 1
        elif self._shown and tag == "pre":
            self.outline.append(("pre", self._depth, beginning(self._code or "")))
            self._code = None

    def handle_data(self, data: str) -> None:
        """Gather the text of a code block."""
        if self._code is not None:
            self._code += data


def differences() -> list[str]:
    """The pages that the site shows with other lists, code blocks or tables than the repository."""
    found = []
    for path in sorted(PAGES.rglob("*.md")):
        page = path.relative_to(PAGES).as_posix()
        markdown = path.read_text().removeprefix(UNSEARCHED).removeprefix(WIDE)
        if GENERATED.search(markdown):
            continue
        built = Built()
        built.feed((SITE / address(page)).read_text())
        wanted = outline_of(markdown)
        if built.outline != wanted:
            pairs = enumerate(zip([*wanted, None], [*built.outline, None], strict=False))
            number, (want, got) = next(pair for pair in pairs if pair[1][0] != pair[1][1])
            found.append(f"{page}: element {number} is {got} on the site and {want} in the repository")
    return found


def build() -> None:
    """Build the site.

    Raises:
        SystemExit: If the builder complains, or a page looks different on the site.
    """
    gather()
    builder = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    built = subprocess.run(builder, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if built.returncode or complaints(built.stdout):
        raise SystemExit(f"{built.stdout}\nthe documentation site has faults")
    if found := differences():
        listed = "\n".join(found)
        raise SystemExit(
            f"{listed}\nlists and what is in them are indented by four blanks, for the builder of the site"
        )
    join_sections()
    add_questions(search_settings()["questions"])


if __name__ == "__main__":
    build()
