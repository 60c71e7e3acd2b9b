"""Views: families of metrics, each made from what is known of the node, under one name.

A view is a module: its file's name is its name, its flag and its chapter in docs/metrics.md. Its
table FAMILIES feeds HELP, TYPE and the docs; `show` gives the rows. A family without rows is not
shown, and a value that is None is no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from gpuledger.health import Health, Histogram

if TYPE_CHECKING:
    from gpuledger.ledger.idle import Idleness
    from gpuledger.readings import Reading

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[str, ...]
Value: TypeAlias = float | Histogram | None
Rows: TypeAlias = Iterable[tuple[Labels, Value]]


class Family(NamedTuple):
    """One metric: a row of the table that feeds the exposition and the docs."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """How the making of a view went."""

    success: bool
    seconds: float


class Node(NamedTuple):
    """The node as it is known now: all that a view may look at."""

    reading: Reading | None
    health: Health
    idleness: Idleness
    outcomes: Mapping[str, Outcome] = {}


class View(Protocol):
    """What a view's module has to have."""

    @property
    def FAMILIES(self) -> tuple[Family, ...]:  # noqa: N802  a module's constant
        """The view's table."""

    def show(self, node: Node) -> Iterator[tuple[Family, Rows]]:
        """Give the rows of each family, families in the order of the table."""
