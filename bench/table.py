"""A figure beside another's, with the goal that it has and whether it is met."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

WIDTH = 60


@dataclass(frozen=True)
class Goal:
    """What a figure, or its ratio to the other's, has to be: at most so much, or at least."""

    of: Literal["figure", "ratio"]
    limit: float
    least: bool = False

    def __str__(self) -> str:
        what = "ratio " if self.of == "ratio" else ""
        return f"{what}{'>=' if self.least else '<='} {self.limit:g}"

    def met(self, value: float) -> bool:
        return value >= self.limit if self.least else value <= self.limit


@dataclass(frozen=True)
class Row:
    """One line of a table; `other` is what the table compares with."""

    key: str
    label: str
    digits: int
    ours: float
    other: float | None = None
    goals: tuple[Goal, ...] = field(default=())

    @property
    def ratio(self) -> float | None:
        return self.ours / self.other if self.other else None

    def verdicts(self) -> list[tuple[Goal, bool]]:
        found = []
        for goal in self.goals:
            value = self.ours if goal.of == "figure" else self.ratio
            assert value is not None
            found.append((goal, goal.met(value)))
        return found

    def __str__(self) -> str:
        other = "" if self.other is None else f"{self.other:,.{self.digits}f}"
        ratio = "" if self.ratio is None else f"{self.ratio:.3f}"
        goals = "; ".join(f"{g}: {'met' if met else 'NOT MET'}" for g, met in self.verdicts())
        line = f"  {self.label:{WIDTH}}{self.ours:>10,.{self.digits}f}{other:>14}{ratio:>8}"
        return f"{line}  {goals}".rstrip()

    def record(self) -> dict[str, Any]:
        goals = [
            {"of": goal.of, "at_least" if goal.least else "at_most": goal.limit, "met": met}
            for goal, met in self.verdicts()
        ]
        return {"gpuledger": self.ours, "other": self.other, "ratio": self.ratio, "goals": goals}


@dataclass(frozen=True)
class Table:
    """Rows under one title, all beside the same other."""

    key: str
    title: str
    other: str
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        ratio = "ratio" if self.other else ""
        head = f"{self.title:{WIDTH + 2}}{'gpuledger':>10}{self.other:>14}{ratio:>8}  goal"
        return "\n".join([head, *map(str, self.rows)])

    def record(self) -> dict[str, Any]:
        rows = {row.key: row.record() for row in self.rows}
        return {"title": self.title, "other": self.other or None, "rows": rows}
