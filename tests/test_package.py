"""What is built is what is installed, and it runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import gpuledger

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, **environ: str) -> str:
    return subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | environ,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Give what `make build` made, by the file's ending."""
    assert shutil.which("make")
    run("make", "build")
    folder = tmp_path_factory.mktemp("built")
    made = (ROOT / "dist").glob(f"gpuledger-{gpuledger.__version__}*")
    return {path.suffix: Path(shutil.copy(path, folder)) for path in made}


def test_the_sources_are_whole(built: dict[str, Path]) -> None:
    """From the source distribution alone one can run, test, lint and measure."""
    with tarfile.open(built[".gz"]) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    folders = (".ci", "bench", "docs", "src", "tests", "tools")
    files = {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    files |= {"CHANGELOG.md", "LICENSE", "Makefile", "README.md", "pyproject.toml", "uv.lock"}
    assert {".ci/run", "bench/__main__.py", "tools/run", "tools/setup"} <= files
    assert not files - there
    assert not any(name.startswith((".venv", "build", "dist")) for name in there)


def test_what_is_built_runs(built: dict[str, Path], tmp_path: Path) -> None:
    """`make build` gives a wheel whose command works where nothing else of ours is."""
    with zipfile.ZipFile(built[".whl"]) as archive:
        files = set(archive.namelist())
    sources = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "gpuledger").rglob("*")
        if path.suffix in {".py", ".typed", ".yaml"}
    }
    assert sources <= files
    assert not any(name.startswith("tests") for name in files)

    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "uv", "pip", "install", "--no-deps", "--offline", "--python", python,
        built[".whl"])  # fmt: skip
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "dependencies.pth").write_text(dependencies(tmp_path) + "\n")
    command = tmp_path / "venv" / "bin" / "gpuledger"
    assert run(command, "--version") == f"gpuledger {gpuledger.__version__}\n"
    where = run(python, "-c", "import gpuledger; print(gpuledger.__file__)", PYTHONPATH="")
    assert Path(where.strip()).is_relative_to(site)
    assert "--poll-interval" in run(command, "serve", "--help")


def dependencies(tmp_path: Path) -> str:
    """Give a folder with our dependencies and without ourselves."""
    folder = tmp_path / "dependencies"
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"_?_?(editable_impl_)?gpuledger", entry.name):
            (folder / entry.name).symlink_to(entry)
    return str(folder)


def test_versions_agree() -> None:
    """The changelog's newest heading is this version, or what comes after the last release."""
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    released = gpuledger.__version__.partition(".dev")[0]
    assert heading[1] == ("Unreleased" if ".dev" in gpuledger.__version__ else released)
