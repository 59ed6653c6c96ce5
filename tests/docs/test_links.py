"""Every link inside the documentation leads somewhere, and every page can be found."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")],
)
_FENCED = re.compile(r"^ *(`{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_REFERENCE = re.compile(r"^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def targets(text: str) -> Iterator[str]:
    """Where the links of a document lead; what is code is no link."""
    prose = _FENCED.sub("", text)
    # The text of a link may be code, its target not: so only code outside of links is taken out.
    prose = _CODE.sub(lambda code: re.sub(r"[\[\]()]", "", code[0]), prose)
    yield from _LINK.findall(prose)
    yield from _REFERENCE.findall(prose)


def anchors(text: str) -> set[str]:
    """The names of a document's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def broken(document: Path, text: str) -> list[str]:
    """The links that lead nowhere."""
    bad: list[str] = []
    for target in targets(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue  # elsewhere
        name, _, anchor = unquote(target).partition("#")
        there = (document.parent / name).resolve() if name else document
        if not there.exists():
            bad.append(target)
        elif anchor and there.suffix == ".md":
            said = text if there == document else there.read_text()
            bad += [target] if anchor not in anchors(said) else []
    return bad


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path):
    assert broken(document, document.read_text()) == []


@pytest.mark.parametrize("folder", ["guides", "design", "reference"])
def test_every_page_is_in_the_index(folder: str):
    index = ROOT / "docs/README.md"
    linked = {(index.parent / target).resolve() for target in targets(index.read_text())}
    assert [
        page.name for page in sorted((ROOT / "docs" / folder).glob("*.md")) if page not in linked
    ] == []


def test_what_is_found(tmp_path: Path):
    (tmp_path / "there.md").write_text("# A `word`, and 2\n\n# Twice\n\n# Twice\n")
    text = """# Here
[ok](there.md), [ok](there.md#a-word-and-2), [ok](#here), [`x`](there.md#twice-1), [ok](https://example.com/x)
[bad](gone.md), [bad](there.md#a-word), [bad](#there)
`[code](gone.md)`
```text
[code](gone.md)
```
[bad][one]

[one]: gone-too.md
"""
    document = tmp_path / "here.md"
    document.write_text(text)
    assert broken(document, text) == ["gone.md", "there.md#a-word", "#there", "gone-too.md"]
