"""What a GPU of a known model is, where a scenario does not say."""

from __future__ import annotations

import re
from typing import NamedTuple

GIB = 1 << 30
MIB = 1 << 20


class Model(NamedTuple):
    """A product: what its memory and its power are like, and what its driver tells of it."""

    arch: str
    memory: int
    reserved: int
    idle_watts: float
    context_watts: float
    limit_watts: float
    sm_clock: int  # MHz, full
    memory_clock: int
    profiles: bool = False  # it can be profiled by GPM: Hopper and newer
    averages: bool = True  # its power is a mean over 1 s: Ampere (but GA100) and newer
    slices: int = 0  # compute slices that MIG can cut it into


MODELS = {
    "H100": Model("hopper", 80 * GIB, 550 * MIB, 60, 40, 700, 1980, 2619, profiles=True, slices=7),
    "H200": Model("hopper", 140 * GIB, 615 * MIB, 80, 37, 700, 1980, 3201, profiles=True, slices=7),
    "B200": Model(
        "blackwell", 179 * GIB, 700 * MIB, 90, 55, 1000, 1965, 3996, profiles=True, slices=7
    ),
    "A100": Model("ampere", 80 * GIB, 550 * MIB, 50, 26, 400, 1410, 1593, averages=False, slices=7),
    "A30": Model("ampere", 24 * GIB, 430 * MIB, 28, 8, 165, 1440, 1215, averages=False, slices=4),
    "L40S": Model("ada", 45 * GIB, 480 * MIB, 33, 66, 350, 2520, 9001),
    "L4": Model("ada", 23 * GIB, 400 * MIB, 16, 14, 72, 2040, 6251),
    "T4": Model("turing", 15 * GIB, 360 * MIB, 10, 17, 70, 1590, 5001, averages=False),
}
USUAL = "H100"


def model_of(name: str) -> Model:
    """Find the model that a product's name has in it as a word; H100 where none."""
    words = set(re.findall(r"[A-Za-z0-9]+", name))
    return next((model for key, model in MODELS.items() if key in words), MODELS[USUAL])
