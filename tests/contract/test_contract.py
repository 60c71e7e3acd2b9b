"""Holds the list of promises to its own: nothing that a seed says is left out or unanswered.

Where the environment variable GPULEDGER_SEEDS names a folder with the seeds (`000_*.txt` and so
on), the list is compared with their text too.
"""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tests.contract.promises import (
    FEATURES,
    REPOSITORY,
    SEEDS,
    Page,
    Promise,
    digest,
    load,
    numbers,
    unanswered,
)

KINDS = {
    *("behaviour", "command", "contributing", "default", "deploy", "doc", "env", "example", "flag"),
    *("image", "label", "metric", "path", "port", "preset", "query", "requires", "trouble"),
}
# Kinds whose id ends with a name that users write down: how that name looks where it is written.
NAMED = {"metric": "{}", "label": "{}", "env": "{}", "flag": "--{}"}
# Names that users write down, as they look in a seed: flags, variables, metrics.
NAMES = re.compile(
    r"(?<![\w-])--[a-z][a-z-]+|\b[A-Z]+(?:_[A-Z]+)+\b|\b[a-z]+(?:_[a-z]+)+\b(?!\()",
)
METRIC = re.compile(r"\b[a-z]+(?:_[a-z]+){2,}\b")

PAGES = [load(seed) for seed in SEEDS]
PROMISES = [promise for page in PAGES for promise in page.promise]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.seed)


def text(page: Page) -> list[str] | None:
    """Read the lines of a page's seed, where this machine has the seeds."""
    folder = os.environ.get("GPULEDGER_SEEDS")
    if not folder:
        return None
    (file,) = Path(folder).glob(f"{page.seed}_*.txt")
    return file.read_text("utf-8").splitlines()


@cache
def functions(file: Path) -> frozenset[str]:
    """Find the test functions of a file, those of its classes as Class::function."""
    found = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef) and member.name.startswith("test_"):
                found.add(prefix + member.name)
    return frozenset(found)


def fault_of_test(node: str) -> str | None:
    """Say what is wrong with the name of a test, if anything is."""
    path, _, function = node.partition("::")
    file = REPOSITORY / path
    if not path.startswith("tests/") or not file.is_file():
        return f"there is no file {path}"
    if function.partition("[")[0] not in functions(file):
        return f"{path} has no test {function}"
    return None


def fault_of_answer(promise: Promise) -> str | None:
    """Say what is wrong with what has become of a promise, if anything is."""
    answers = [promise.test, promise.due, promise.deviation]
    if sum(answer is not None for answer in answers) != 1:
        return "needs exactly one of test, due and deviation"
    if promise.due is not None and promise.due not in FEATURES:
        return f"due to {promise.due!r}, which is none of {', '.join(FEATURES)}"
    if promise.deviation is not None and len(promise.deviation.split()) < 12:
        return "deviates without a reason of at least a dozen words"
    if promise.test is not None and not promise.tests:
        return "an empty list of tests shows nothing"
    return next(filter(None, map(fault_of_test, promise.tests)), None)


@every_page
def test_digests_are_those_of_the_seed(page: Page) -> None:
    """Line numbers mean something: there is a digest a line, and it is the seed's where that is."""
    assert len(page.digests) == page.lines
    assert all(re.fullmatch(r"(?:[0-9a-f]{6})?", line) for line in page.digests)
    seed = text(page)
    if seed is not None:
        assert list(page.digests) == [digest(line) for line in seed]


@every_page
def test_every_line_of_a_seed_is_answered(page: Page) -> None:
    """No line of a seed is forgotten: it makes a promise, or is said to make none, never both.

    Of several promises in one line, the number of all keeps each from getting lost.
    """
    assert unanswered(page) == []
    assert len(page.promise) == page.promises


@every_page
def test_a_dropped_entry_is_missed(page: Page) -> None:
    """The test of completeness can fail: a line whose entries are taken away is missed."""
    for line in (number for number, kept in enumerate(page.digests, start=1) if kept):
        without = msgspec.structs.replace(
            page,
            promise=tuple(one for one in page.promise if line not in numbers(one.lines)),
            no_promise=tuple(one for one in page.no_promise if line not in numbers(one.lines)),
        )
        assert any(f"line {line}: neither" in fault for fault in unanswered(without))


def test_a_wrong_range_is_noticed() -> None:
    """Ranges are held to the seed: outside of it, listed twice, backwards or no numbers at all."""
    page = PAGES[0]
    silent = page.no_promise[0]
    for lines, fault in (("0", "has lines"), ("117", "has lines"), (silent.lines, "twice")):
        more = msgspec.structs.replace(silent, lines=lines)
        faults = unanswered(msgspec.structs.replace(page, no_promise=(*page.no_promise, more)))
        assert any(fault in each for each in faults)
    both = msgspec.structs.replace(page.promise[0], lines=silent.lines)
    faults = unanswered(msgspec.structs.replace(page, promise=(*page.promise, both)))
    assert all("as a promise and as none" in fault for fault in faults)
    assert len(faults) == len(list(numbers(silent.lines)))
    for lines in ("9-3", "three", "", "3,", "-3"):
        with pytest.raises(ValueError, match="range"):
            list(numbers(lines))


def test_ids_are_unique_and_say_what_is_promised() -> None:
    """A promise can be spoken of: its id is its own, with its seed and kind in it."""
    ids = [promise.id for promise in PROMISES]
    assert len(ids) == len(set(ids))
    for page in PAGES:
        for promise in page.promise:
            assert re.fullmatch(rf"{page.seed}\.[a-z]+(\.[\w-]+)+", promise.id), promise.id
            assert promise.kind in KINDS, promise.id


@every_page
def test_every_promise_is_answered(page: Page) -> None:
    """A promise has a test that exists, a feature it is due to, or a reasoned deviation."""
    faults = [f"{promise.id}: {fault_of_answer(promise)}" for promise in page.promise]
    assert [fault for fault in faults if not fault.endswith(": None")] == []


def test_a_promise_without_an_answer_fails() -> None:
    """The test of answers can fail: on none, on two, on any that is empty or points nowhere."""
    here = "tests/contract/test_contract.py::test_a_promise_without_an_answer_fails"
    answers: list[tuple[dict[str, str | tuple[str, ...]], str]] = [
        ({}, "exactly one"),
        ({"due": "idle", "deviation": "word " * 12}, "exactly one"),
        ({"due": "issue 7"}, "none of"),
        ({"deviation": "we would rather not"}, "dozen"),
        ({"test": ()}, "empty"),
        ({"test": (here, "tests/test_nowhere.py::test_it")}, "no file"),
        ({"test": here + "_at_all"}, "no test"),
    ]
    for answer, fault in answers:
        entry = {"id": "000.flag.x", "lines": "1", "says": "`--x`", **answer}
        assert fault in (fault_of_answer(msgspec.convert(entry, Promise)) or "")
    assert fault_of_test(here) is None
    assert fault_of_test(here + "[one of several]") is None


@every_page
def test_names_are_written_as_their_users_write_them(page: Page) -> None:
    """A metric, label, flag or variable is in its promise to the letter, as it is in the seed."""
    seed = text(page)
    for promise in (promise for promise in page.promise if promise.kind in NAMED):
        name = rf"(?<![\w-]){re.escape(NAMED[promise.kind].format(promise.name))}(?![\w-])"
        assert re.search(name, promise.code), promise.id
        if seed is not None:
            cited = "\n".join(seed[number - 1] for number in numbers(promise.lines))
            assert re.search(name, cited), promise.id
    for number, line in enumerate(seed or [], start=1):
        said = [promise.says for promise in page.promise if number in numbers(promise.lines)]
        names = set(NAMES.findall(re.sub(r"https?://\S+", "", line)))
        assert not said or names <= set(NAMES.findall("\n".join(said))), f"line {number}"


@every_page
def test_every_metric_of_a_query_is_promised(page: Page) -> None:
    """A query cannot be shown without its metrics, so each of them is a promise of its own."""
    metrics = {promise.name for promise in page.promise if promise.kind == "metric"}
    queries = [promise for promise in page.promise if promise.kind == "query"]
    for query in queries:
        assert METRIC.findall(query.code), query.id
        assert set(METRIC.findall(query.code)) <= metrics, query.id


def test_the_table_counts_every_promise() -> None:
    """`python -m tests.contract` tells where the list stands, for each seed and feature."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.contract"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(rf"^all +{len(PROMISES)} ", ran.stdout, re.MULTILINE)
    assert all(promise.id in ran.stdout for promise in PROMISES if promise.due)
