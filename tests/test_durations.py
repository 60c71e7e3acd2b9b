"""Durations are read as Go and the seeds write them, and nothing else passes for one."""

import pytest

from gpuledger.durations import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("1m30s", 90),
        ("250ms", 0.25),
        ("1h", 3600),
        ("1.5h", 5400),
        ("10", 10),
        ("0.5", 0.5),
        (".5s", 0.5),
        ("100us", 1e-4),
        ("2h45m", 9900),
        (" 5s ", 5),
    ],
)
def test_what_is_one(text: str, seconds: float) -> None:
    """Go's form and plain seconds."""
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["5x", "", "s", "-5s", "5 s", "1m 30s", "five", "5s5", "1e3", "inf", "nan", "5ss", "\u0665s"],
)
def test_what_is_none(text: str) -> None:
    """Anything else is an error that says what is allowed."""
    with pytest.raises(ValueError, match=r"is not a duration: give seconds .* or Go's form"):
        duration(text)
