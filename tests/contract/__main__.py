"""Prints where the list of promises stands: how many each seed has, and what is still due."""

import sys
from collections.abc import Iterable, Iterator

from tests.contract.promises import FEATURES, SEEDS, Page, Promise, load


def row(name: str, title: str, promises: Iterable[Promise]) -> str:
    """Count what has become of some promises, as one line of the table."""
    entries = list(promises)
    shown = sum(bool(promise.tests) for promise in entries)
    due = sum(promise.due is not None for promise in entries)
    deviating = sum(promise.deviation is not None for promise in entries)
    return f"{name:4} {len(entries):>8} {shown:>5} {due:>4} {deviating:>9}  {title}"


def table(pages: list[Page]) -> Iterator[str]:
    """Give the whole text, line by line."""
    promises = [promise for page in pages for promise in page.promise]
    yield "seed promises shown  due deviating"
    for page in pages:
        yield row(page.seed, page.title, page.promise)
    yield row("all", "", promises).rstrip()
    for feature, meaning in FEATURES.items():
        due = [promise.id for promise in promises if promise.due == feature]
        if due:
            yield f"\ndue to {feature} ({len(due)}): {meaning}"
            yield from (f"  {name}" for name in due)


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table([load(seed) for seed in SEEDS]))
