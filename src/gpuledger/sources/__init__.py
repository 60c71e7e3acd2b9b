"""What reads GPUs: the one seam where the world is swapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpuledger.readings import Reading


class SourceEnded(Exception):  # noqa: N818  an end is no error
    """There will be no more readings; says why."""


class Source(Protocol):
    """Something that can be asked for a reading again and again."""

    name: str
    interval: float | None  # seconds between its readings, where it has a pace of its own
    remembers: float | None  # seconds after which what it could tell begins to be forgotten

    async def read(self) -> Reading:
        """Give what is to be seen now, in bounded time; what failed is in the reading."""

    async def glance(self) -> None:
        """Look at what would be forgotten before the next reading, and keep it for that."""

    async def close(self) -> None:
        """Let go of the GPUs, in bounded time."""
