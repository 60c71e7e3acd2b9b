"""`make bench`: a table on standard output, the same as JSON in build/bench.json."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

from bench.demo import day
from bench.demo import served as demo_served
from bench.minute import minute
from bench.render import costs

SIZES = (16, 64)
RESULT = Path("build/bench.json")
ROWS = {
    "cpu_seconds_per_minute": ("CPU, seconds a minute", "{:.3f}"),
    "series": ("series", "{:.0f}"),
    "cpu_per_1000_series": ("CPU, seconds a minute and 1,000 series", "{:.3f}"),
    "resident_mebibytes": ("resident memory, MiB", "{:.1f}"),
    "started_in_seconds": ("start to first scrape, seconds", "{:.2f}"),
    "scrape_p50_ms": ("scrape p50, ms", "{:.1f}"),
    "scrape_p99_ms": ("scrape p99, ms", "{:.1f}"),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="of life, a multiple of 15")
    seconds = parser.parse_args().seconds
    results: dict[str, Any] = {"python": platform.python_version(), "seconds": seconds}
    print(f"A minute of life on a fake node of 8 GPUs ({seconds} s measured): a poll every 5 s, a")
    print("compressed scrape every 15 s, each after a new reading.\n")
    for processes in SIZES:
        name = f"8x{processes}"
        results[name] = minute(processes, seconds)
        print(f"{name:44}{'gpuledger':>12}{'nvitop-exp.':>13}{'ratio':>8}")
        ours, theirs = results[name]["gpuledger"], results[name]["nvitop-exporter"]
        for key, (label, form) in ROWS.items():
            one, other = ours[key], theirs[key]
            print(f"{label:44}{form.format(one):>12}{form.format(other):>13}{one / other:>8.2f}")
        print()
    for processes in SIZES:
        cost = results[f"costs 8x{processes}"] = costs(processes)
        ratio = cost["render_ms_per_1000"] / cost["generate_latest_ms_per_1000"]
        print(
            f"8x{processes}: a poll {cost['poll_ms']:.1f} ms of CPU, the fake driver's included; "
            f"1,000 series rendered and compressed {cost['render_ms_per_1000']:.2f} ms, "
            f"with prometheus_client {cost['generate_latest_ms_per_1000']:.1f} ms: {ratio:.3f}"
        )
    demo = results["demo"] = demo_served()
    print(
        f"\nThe demo at a poll a second: {demo['percent_of_a_core']:.2f} % of a core, "
        f"{demo['resident_mebibytes']:.1f} MiB."
    )
    lived = results["day"] = day()
    print(
        f"A day of its polls in virtual time, {lived['ms_per_poll']:.1f} ms each: "
        f"{lived['mebibytes_after_an_hour']:.1f} MiB after the first hour, "
        f"{lived['mebibytes_at_the_end']:.1f} at the end."
    )
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nThe same as JSON: {RESULT}")


if __name__ == "__main__":
    main()
