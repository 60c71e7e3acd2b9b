"""Compiles the library, once for every driver version and every change of its sources."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Final

from tests.fakes.nvml import layout

_HERE: Final = Path(__file__).parent
_CACHE: Final = Path(__file__).parents[3] / "build" / "fakes"
_FLAGS: Final = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-pthread")
LIBRARY: Final = "libnvidia-ml.so.1"


def compiler() -> list[str]:
    """Find a C compiler: the one asked for, the machine's, or the one from PyPI."""
    if asked := os.environ.get("CC"):
        return shlex.split(asked)
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise RuntimeError(
        "no C compiler for the fake NVML: install gcc or clang, or `pip install ziglang`"
    )


def _headers() -> Path:
    for folder in files("nvidia").iterdir():
        if (folder / "include" / "nvml.h").is_file():
            return Path(str(folder / "include"))
    raise RuntimeError("no nvml.h for the fake NVML: `pip install nvidia-nvml-dev`")


def exports(driver: int) -> list[str]:
    """List the functions that a driver of that major version has."""
    return [name for name, since in layout.functions().items() if since <= driver]


@functools.cache
def library(driver: int) -> Path:
    """Give the library of a driver's major version, compiled if it is not yet."""
    sources = sorted(_HERE.glob("*.c"))
    script = f"{{ global: fakeForget; {'; '.join(exports(driver))}; local: *; }};"
    parts = [layout.header(), script, *_FLAGS, *compiler()]
    parts += [
        path.read_text("ascii") for path in (*sources, _HERE / "fake.h", _HERE / "functions.def")
    ]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    built = _CACHE / f"nvml-{driver}-{digest}"
    if not built.is_dir():
        _CACHE.mkdir(parents=True, exist_ok=True)
        _compile(sources, script, built)
    return built / LIBRARY


def _compile(sources: list[Path], script: str, built: Path) -> None:
    """Compile in a folder of its own and move it into place: others may be doing the same."""
    with tempfile.TemporaryDirectory(dir=built.parent) as name:
        work = Path(name)
        (work / "layout.h").write_text(layout.header(), encoding="ascii")
        (work / "exports.map").write_text(script, encoding="ascii")
        (work / "out").mkdir()
        subprocess.run(
            [
                *compiler(),
                *_FLAGS,
                *(f"-I{folder}" for folder in (work, _HERE)),
                f"-isystem{_headers()}",
                f"-Wl,--version-script={work / 'exports.map'}",
                *map(str, sources),
                f"-o{work / 'out' / LIBRARY}",
            ],
            check=True,
        )
        try:
            (work / "out").rename(built)
        except OSError:
            if not built.is_dir():
                raise
