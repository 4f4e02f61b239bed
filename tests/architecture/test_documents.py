"""The links in the repository's text lead somewhere, and the text is about the product alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.tree import ROOT, files, name_of, refuse

FENCE: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
INLINE_CODE: Final = re.compile(r"`[^`\n]+`")
LINK: Final = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)|(?:href|src)=\"([^\"]+)\"", re.MULTILINE)
HEADING: Final = re.compile(r"^#+\s+(.+?)\s*#*$", re.MULTILINE)
ANCHOR: Final = re.compile(r"(?:id|name)=\"([^\"]+)\"")
EXTERNAL: Final = re.compile(r"[a-z][a-z0-9+.-]*:|//")

FOREIGN: Final = {
    "a session of work": re.compile(r"\bsession (?:no\. ?|number )?\d+\b(?!\.)", re.IGNORECASE),
    "a ticket": re.compile(
        r"\b(?:ticket|issue|bug|pull request|PR|story)s? #?\d+\b|\b(?:close|fixe?|resolve|see)[ds]? #\d+\b|\(#\d+\)",
        re.IGNORECASE,
    ),
    "a path of one machine": re.compile(r"(?<![\w.])/(?:work|root|home/\w+)\b/"),
    "a registry host": re.compile(
        r"\bpypi\.org|pythonhosted\.org|\brepo1?\.maven\b|\bmaven\.org|deb\.debian\.org|registry\.npmjs|\bnpmjs\.com"
    ),
    "unfinished text": re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b"),
}
"""Each pattern is written so that it does not match itself."""


def prose(text: str) -> str:
    """Markdown without its code."""
    return INLINE_CODE.sub("", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """The anchors in a page."""
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in HEADING.findall(FENCE.sub("", text))]
    slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
    repeated = [f"{slug}-{slugs[:at].count(slug)}" for at, slug in enumerate(slugs) if slug in slugs[:at]]
    return {*slugs, *repeated, *ANCHOR.findall(text)}


def dead_links(page: Path) -> Iterator[str]:
    """Links of a page to missing files or headings."""
    for groups in LINK.findall(prose(page.read_text(encoding="utf-8"))):
        link = "".join(groups)
        if EXTERNAL.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        known = anchors(target.read_text(encoding="utf-8")) if target.suffix == ".md" and target.exists() else {anchor}
        if not target.exists() or (anchor and anchor not in known):
            yield link


def foreign_words(text: str) -> Iterator[str]:
    """Parts of a text that are not about the product."""
    for what, pattern in FOREIGN.items():
        yield from (f"{what}: {found.group()}" for found in pattern.finditer(text))


def pages() -> list[Path]:
    return [path for path in files() if path.suffix == ".md"]


def texts() -> Iterator[tuple[Path, str]]:
    for path in files():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def test_every_link_leads_somewhere() -> None:
    refuse(f"{name_of(page)}: {link}" for page in pages() for link in dead_links(page))


def test_every_page_under_docs_is_in_its_contents() -> None:
    contents = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = {(ROOT / "docs" / "".join(groups).partition("#")[0]).resolve() for groups in LINK.findall(contents)}
    written = {page for page in pages() if page.is_relative_to(ROOT / "docs") and page.name != "README.md"}
    refuse(sorted(map(name_of, written - listed)))


def test_the_text_of_the_repository_speaks_of_the_product_alone() -> None:
    refuse(f"{name_of(path)}: {word}" for path, text in texts() for word in foreign_words(text))


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Sending, in order\n## Twice\n## Twice\n<a id='x'></a>", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md) [b](other.md#sending-in-order) [c](#here) [d](other.md#twice-1) [e](https://x.example)\n"
        "[f](gone.md) [g](other.md#gone) [h](#gone) ![i](gone.png 'title') <img src=\"gone.svg\">\n[j]: gone/\n"
        "`[k](code.md)`\n```\n[l](code.md)\n```\n",
        encoding="utf-8",
    )
    assert list(dead_links(page)) == ["gone.md", "other.md#gone", "#gone", "gone.png", "gone.svg", "gone/"]


@pytest.mark.parametrize(
    "parts",
    [
        ("as found in session", " 12"),
        ("see issue", " 7"),
        ("fixes #", "1234"),
        ("done (#", "1234)"),
        ("see /wo", "rk/main"),
        ("in /ho", "me/me/x"),
        ("from https://py", "pi.org/simple"),
        ("from repo1.ma", "ven.org"),
        ("# TO", "DO later"),
    ],
)
def test_a_foreign_word_is_found(parts: tuple[str, str]) -> None:
    assert len(list(foreign_words("".join(parts)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "session 4.3 s",
        "&#39;",
        "a session of 12 messages",
        "/usr/bin/java",
        "KIP-966",
        "color: #fff",
        "C#12",
        "message #0 of 4",
    ],
)
def test_the_words_of_the_field_are_let_through(text: str) -> None:
    assert list(foreign_words(text)) == []


def test_the_sizing_of_spark_rests_on_the_figures_of_the_guide() -> None:
    figures = (ROOT / "docs" / "guide" / "speed.md").read_text(encoding="utf-8")
    measured = dict(re.findall(r"^\| (spark-[\w-]+) \| ([\d,]+) \|", figures, re.MULTILINE))
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    sized = re.findall(r"\((spark-[\w-]+), ([\d,]+)\) \| ([\d,]+) \|", page)
    assert len(sized) >= 6
    for row, figure, for_each_core in sized:
        assert measured[row] == figure, row
        half = int(figure.replace(",", "")) / 2
        assert abs(int(for_each_core.replace(",", "")) - half) < 0.03 * half, row
