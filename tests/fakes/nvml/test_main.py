"""The fake node as a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_it_runs_until_it_is_told_to_end() -> None:
    """What it prints is all that another program needs to see a node that lives."""
    command = [sys.executable, "-m", "tests.fakes.nvml", "--gpus=2", "--processes=3", "--costs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout
        lines = [node.stdout.readline().strip() for _ in range(2)]
        environ = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        program = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"
        seen = subprocess.check_output([sys.executable, "-c", program], env=os.environ | environ)
        node.terminate()
        assert node.wait(10) == 0
    assert seen == b"2\n"
    assert not Path(environ["FAKE_NVML_STATE"]).exists()
