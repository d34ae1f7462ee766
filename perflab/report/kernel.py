"""The kernel that notebooks are executed in: this Python, talked to through files only this user can open."""

from __future__ import annotations

import queue
import sys
import time
from pathlib import Path
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from traitlets import Type

_LONGEST_SOCKET = 90
"""Paths of local sockets may have about 100 characters; perflab's have a few more than the connection file's."""
_LOOK_S = 0.5


class WatchfulChannel(AsyncZMQSocketChannel):
    """Looks for a message again and again, where its like waits to be told of one.

    Nbclient sends the state of output widgets past the event loop, on the very socket on which it awaits the reply to a
    cell. A reply that arrives just then is taken in by the sending, nobody is told, and the notebook waits for ever.
    """

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:  # type: ignore[override]
        """The next message; raises `queue.Empty` when none came within `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LOOK_S if end is None else min(_LOOK_S, max(end - time.monotonic(), 0))
            try:
                found: dict[str, Any] = await super().get_msg(left)
                return found
            except queue.Empty:
                if end is not None and time.monotonic() >= end:
                    raise


class WatchfulClient(AsyncKernelClient):
    """The usual client, but for how it awaits replies."""

    shell_channel_class = Type(WatchfulChannel)


def kernel_manager(scratch: Path) -> type[AsyncKernelManager]:
    """A kernel manager whose only kernel is this Python: no kernel needs to be registered anywhere.

    Parameters
    ----------
    scratch
        Empty folder for the kernel's files, which outlives it.
    """
    spec = KernelSpec(
        argv=[sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name="Python 3", language="python", interrupt_mode="signal",
        env={"IPYTHONDIR": str(scratch), "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
    )  # fmt: skip

    class ThisPython(AsyncKernelManager):
        """Starts the running interpreter, and talks to it through files only this user can open."""

        client_factory = Type(WatchfulClient)

        def __init__(self, **kwargs: Any) -> None:
            file = str(scratch / "kernel.json")
            local = sys.platform != "win32" and len(file) < _LONGEST_SOCKET
            super().__init__(**{**kwargs, "connection_file": file, "transport": "ipc" if local else "tcp"})

        @property
        def kernel_spec(self) -> KernelSpec:
            return spec

        async def _async_interrupt_kernel(self) -> None:
            # A kernel is interrupted before it is asked to end; an idle one may complain of that on stderr.
            if not self.shutting_down:
                await super()._async_interrupt_kernel()

    return ThisPython
