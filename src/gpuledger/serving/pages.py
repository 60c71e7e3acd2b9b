"""What the paths show of the node: rendered at most once a reading, and only when asked for."""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from difflib import get_close_matches
from typing import TYPE_CHECKING

from gpuledger import __version__
from gpuledger.serving.exposition import CONTENT_TYPES, Exposition, Format, negotiated, wants_gzip
from gpuledger.serving.http import Answer
from gpuledger.serving.page import landing_page
from gpuledger.views import Node, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuledger.views import View

OWN = "self"  # tells of the others, so it is made last, and for each choice of views
MOST_PAGES = 8  # kept of one reading; more choices than anybody has scrapers

logger = logging.getLogger("gpuledger.views")


class NodePages:
    """The pages of a node, as of its newest reading."""

    def __init__(
        self,
        views: Mapping[str, View],
        metrics_path: str,
        constant: Mapping[str, str | None],
        constant_of: Mapping[str, Mapping[str, str | None]],
        ready: Callable[[], str | None],
    ) -> None:
        self.metrics_path = metrics_path
        self.ready = ready
        self._views = views
        self._expositions = {
            name: Exposition({**constant, **constant_of.get(name, {})}) for name in views
        }
        self._node: Node | None = None
        self.shown = asyncio.Event()  # set once there is something to show
        self._parts: dict[tuple[str, Format], tuple[str, Outcome]] = {}
        self._pages: dict[tuple[tuple[str, ...], Format, bool], bytes] = {}
        self._failing: set[str] = set()

    def renew(self, node: Node) -> None:
        """Show another reading from now on."""
        if self._parts:
            for exposition in self._expositions.values():
                exposition.evict()
        self._node = node
        self._parts.clear()
        self._pages.clear()
        self.shown.set()

    def metrics(self, accept: str, accept_encoding: str, collect: Sequence[str]) -> Answer:
        unknown = [name for name in collect if name not in self._views]
        if unknown:
            return self._no_view(unknown[0])
        chosen = tuple(n for n in self._views if not collect or n in collect)
        form, zipped = negotiated(accept), wants_gzip(accept_encoding)
        key = (chosen, form, zipped)
        page = self._pages.get(key)
        if page is None:
            page = self._page(chosen, form)
            if zipped:
                page = gzip.compress(page, compresslevel=1, mtime=0)
            if len(self._pages) >= MOST_PAGES:
                self._pages.clear()
            self._pages[key] = page
        headers = {"vary": "accept, accept-encoding"}
        if zipped:
            headers["content-encoding"] = "gzip"
        return Answer(200, CONTENT_TYPES[form], page, headers)

    def landing(self) -> str:
        links = {
            self.metrics_path: "the metrics",
            "/healthz": "whether the agent lives",
            "/-/ready": "whether its figures are fresh",
        }
        return landing_page(__version__, links)

    def _page(self, chosen: tuple[str, ...], form: Format) -> bytes:
        plain = self._pages.get((chosen, form, False))
        if plain is not None:
            return plain
        if self._node is None:
            raise RuntimeError("a page was asked for before the first reading")
        parts: list[str] = []
        outcomes: dict[str, Outcome] = {}
        for name in sorted(chosen, key=lambda name: name == OWN):
            part, outcome = self._part(name, form, self._node._replace(outcomes=outcomes))
            parts.append(part)
            outcomes[name] = outcome
        if form == "openmetrics":
            parts.append("# EOF\n")
        return "".join(parts).encode()

    def _part(self, name: str, form: Format, node: Node) -> tuple[str, Outcome]:
        made = self._parts.get((name, form))
        if made is None or name == OWN:
            made = self._parts[name, form] = self._made(name, form, node)
        return made

    def _made(self, name: str, form: Format, node: Node) -> tuple[str, Outcome]:
        begin = time.perf_counter()
        try:
            text = self._expositions[name].render(self._views[name].show(node), form)
        except Exception:  # one view's fault must not cost the others
            if name not in self._failing:
                logger.exception("the view %s failed and is left out", name)
            self._failing.add(name)
            return "", Outcome(success=False, seconds=time.perf_counter() - begin)
        self._failing.discard(name)
        return text, Outcome(success=True, seconds=time.perf_counter() - begin)

    def _no_view(self, name: str) -> Answer:
        near = get_close_matches(name, self._views, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        line = f"no view {name!r} here: {hint}there are {', '.join(self._views)}\n"
        return Answer(400, "text/plain; charset=utf-8", line.encode("utf-8", "backslashreplace"))
