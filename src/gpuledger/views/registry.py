"""The views that there are, in the order of a page."""

from __future__ import annotations

from gpuledger.views import View, devices, idle
from gpuledger.views import self as own

VIEWS: dict[str, View] = {"idle": idle, "devices": devices, "self": own}
