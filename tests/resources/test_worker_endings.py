"""The end of a worker that answers nothing any more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import pytest

from agentfly_core.resources import WorkerProvider
from agentfly_core.types import ResourceSpec


@pytest.mark.parametrize("ending", ["reset", "cancelled", "stopped"])
def test_a_frozen_worker_is_ended(ending):
    async def main():
        provider = WorkerProvider(timeout=0.5)
        handle = await provider.start(ResourceSpec.make("worker", "collections:Counter"), run_id=f"test-{os.getpid()}")
        os.kill(handle.pid, signal.SIGSTOP)
        if ending == "reset":
            with pytest.raises(TimeoutError):
                await provider.reset(handle)
        elif ending == "cancelled":
            calling = asyncio.ensure_future(handle.call("most_common"))
            await asyncio.sleep(0.1)
            calling.cancel()
            await asyncio.wait({calling})
        with contextlib.suppress(TimeoutError):
            await provider.stop(handle)
        with pytest.raises(ProcessLookupError):  # ended, and collected
            os.kill(handle.pid, 0)
        assert not await provider.health(handle)

    asyncio.run(main())
