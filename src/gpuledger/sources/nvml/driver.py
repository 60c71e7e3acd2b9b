"""A thread for calls that may never return, so that whoever waits for one can stop waiting.

Calls run one after another. One that takes too long can be left behind together with its thread:
the next call gets a new thread, and the old one ends as soon as its call returns.
"""

from __future__ import annotations

import asyncio
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Asked = TypeVar("Asked")
Result = TypeVar("Result")
Call: TypeAlias = "tuple[Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]]"


class Driver:
    """Runs calls to the driver off the event loop."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Call | None] | None = None

    def start(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        """Run a function on the thread, after those that were started before it."""
        if self._calls is None:
            self._calls = SimpleQueue()
            threading.Thread(
                target=_work, args=(self._calls,), name="gpuledger-driver", daemon=True
            ).start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._calls.put((function, loop, future))
        return future

    def leave(self) -> None:
        """Let the thread end, as soon as the call that it is in returns."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


class Turn(Generic[Asked, Result]):
    """Asks one after another in one call, until it is done or somebody leaves it."""

    def __init__(self, waiting: Sequence[Asked], ask: Callable[[Asked], Result]) -> None:
        self.answers: dict[Asked, Result] = {}
        self._waiting = waiting
        self._ask = ask
        self._asked_at = time.monotonic()
        self._left = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """Ask; this is what runs on the thread."""
        for each in self._waiting:
            self._asked_at = time.monotonic()
            answer = self._ask(each)
            with self._lock:
                if self._left:
                    return  # too late: the others are asked elsewhere
                self.answers[each] = answer

    async def ended(self, call: asyncio.Future[Any], patience: float) -> bool:
        """Wait as long as each answer comes in time; False where one does not."""
        while (left := self._asked_at + patience - time.monotonic()) > 0:
            if await settled(call, left):
                return True
        return call.done()

    def leave(self) -> Asked | None:
        """Ask no more, and give who has not answered; None where all have, after all."""
        with self._lock:
            self._left = True
            return next((each for each in self._waiting if each not in self.answers), None)


async def settled(call: asyncio.Future[Any], patience: float) -> bool:
    """Wait for a call, but not for ever; the call runs on."""
    done, _ = await asyncio.wait((call,), timeout=patience)
    return bool(done)


def _work(calls: SimpleQueue[Call | None]) -> None:
    while (call := calls.get()) is not None:
        function, loop, future = call
        result: Any = None
        error: Exception | None = None
        try:
            result = function()
        except Exception as raised:  # noqa: BLE001  whoever waits for it gets it
            error = raised
        if loop.is_closed():
            return  # nobody waits any more
        loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
