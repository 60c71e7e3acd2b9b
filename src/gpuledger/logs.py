"""The log, on standard error: one event a line, as text (key=value) or JSON."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

LEVELS = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR"}
NAMES = {"WARNING": "warn"}


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        pairs = {**_facts(record), "msg": msgspec.json.encode(_message(self, record)).decode()}
        return " ".join(f"{key}={value}" for key, value in pairs.items())


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode({**_facts(record), "msg": _message(self, record)}).decode()


def start(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    logging.basicConfig(level=LEVELS[level], handlers=[handler], force=True)
    # The loop's own debugging is of no use to a user, and uvicorn says what a client did wrong.
    for name in ("asyncio", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _facts(record: logging.LogRecord) -> dict[str, str]:
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    level = NAMES.get(record.levelname, record.levelname.lower())
    return {"time": time.replace("+00:00", "Z"), "level": level, "logger": record.name}


def _message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    message = record.getMessage()
    if record.exc_info:
        message += "\n" + formatter.formatException(record.exc_info)
    return message.encode("utf-8", "backslashreplace").decode()
