"""What is built is what is installed, and it runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

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


def test_what_is_built_runs(tmp_path: Path) -> None:
    """`make build` gives a wheel whose command works where nothing else of ours is."""
    assert shutil.which("make")
    built = run("make", "build").split()
    wheel = next(name for name in built if name.endswith(".whl"))
    with zipfile.ZipFile(ROOT / "dist" / wheel) as archive:
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
        ROOT / "dist" / wheel)  # fmt: skip
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
