"""Connects to the driver and finds its devices; what one of them refuses costs that one alone."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pynvml as nv

from gpuledger.sources.nvml.device import Device, Gone
from gpuledger.sources.nvml.errors import UNREADABLE, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("gpuledger.nvml")


class Opened(NamedTuple):
    """The devices that could be opened, and whether there are others."""

    devices: list[Device]
    incomplete: bool


def open_devices() -> Opened:
    """Connect anew, whatever was before, and look for devices."""
    shut_down()
    nv.nvmlInit()
    driver = {
        "driver": _told(nv.nvmlSystemGetDriverVersion),
        "version.nvml": _told(nv.nvmlSystemGetNVMLVersion),
    }
    cuda = _told(nv.nvmlSystemGetCudaDriverVersion)
    if cuda:
        driver["version.cuda"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
    number = nv.nvmlDeviceGetCount()
    devices = []
    for index in range(number):
        try:
            devices.append(Device(index, nv.nvmlDeviceGetHandleByIndex(index), driver))
        except nv.NVMLError as error:
            logger.warning("GPU %d cannot be opened: %s", index, name_of(error))
        except Gone as gone:
            logger.warning("GPU %d cannot be opened: %s", index, gone)
        except ValueError:  # a uuid that is no UTF-8
            logger.warning("GPU %d cannot be opened: %s", index, UNREADABLE)
    return Opened(devices, incomplete=len(devices) < number)


def shut_down() -> None:
    with suppress(nv.NVMLError):  # it was not running: all that was wanted
        nv.nvmlShutdown()


def _told(ask: Callable[[], Any]) -> Any:
    """Give what the driver says of itself, or nothing: an old one, or what is no UTF-8."""
    try:
        return ask()
    except (nv.NVMLError, ValueError):
        return ""
