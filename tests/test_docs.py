"""Pages that are made from tables are never stale, and every document's links lead somewhere."""

import re
from pathlib import Path

import pytest
from docs.generate import PAGES

from gpuledger.settings import TABLE

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    """A page is what its table says now; else: make docs."""
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), f"docs/{name} is stale: make docs"


def test_every_setting_is_documented() -> None:
    """Each flag and each variable stands in docs/settings.md."""
    page = (ROOT / "docs" / "settings.md").read_text()
    for row in TABLE:
        for name in (*row.flags, *row.environ):
            assert re.search(rf"`{re.escape(name)}[ `]", page), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    """A link to a file or a heading of ours has its target."""
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
            assert anchor in {slug(head) for head in heads}, target


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
