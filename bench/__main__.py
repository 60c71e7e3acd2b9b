"""`make bench`: tables on standard output, the same as JSON in build/bench.json."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.demo import day, served
from bench.minute import SCRAPE, minute
from bench.render import costs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.table import Table

SIZES = (16, 64)
RESULT = Path("build/bench.json")


def tables(seconds: int) -> Iterator[Table]:
    for processes in SIZES:
        yield minute(processes, seconds)
    for processes in SIZES:
        yield costs(processes)
    yield served()
    yield day()


def whole_scrapes(text: str) -> int:
    if not text.isdecimal() or not int(text) or int(text) % SCRAPE:
        raise argparse.ArgumentTypeError(
            f"{text}: a scrape comes every {SCRAPE} s, so it has to be {SCRAPE}, {2 * SCRAPE}, ..."
        )
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--seconds", type=whole_scrapes, default=60, help=f"of life, a multiple of {SCRAPE}"
    )
    seconds = parser.parse_args().seconds
    print("On a fake driver, which costs next to nothing. A minute of life is a poll every 5 s and")
    print(f"a compressed scrape every {SCRAPE}, each after a new reading; {seconds} s are lived.")
    made: dict[str, Any] = {"python": platform.python_version(), "seconds": seconds}
    for table in tables(seconds):
        print(f"\n{table}", flush=True)
        made[table.key] = table.record()
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(made, indent=1) + "\n")
    print(f"\nThe same as JSON: {RESULT}")


if __name__ == "__main__":
    main()
