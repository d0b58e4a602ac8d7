"""Deterministic mode: which requests are sampled together depends on the chains alone."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.agents.text_action import TextActionAgent
from agentfly_core.resources.coordinator import InProcessCoordinator
from agentfly_core.resources.local import ObjectProvider
from agentfly_core.resources.manager import ResourceManager
from agentfly_core.tools import tool
from agentfly_core.types import ChainStatus, ResourceSpec, UsageError

C = ChainStatus


class Waves:
    """A wave backend that notes its waves; each chain's turns follow from its seed and the wave it is in."""

    weight_version = 0
    max_model_len = None

    def __init__(self, kit: Any) -> None:
        self._kit = kit
        self.waves: list[list[tuple[str, int, int]]] = []

    async def generate(self, request: Any) -> Any:
        raise AssertionError("deterministic mode samples in waves only")

    async def generate_wave(self, requests: Any) -> Any:
        self.waves.append([(r.chain_key[0], r.chain_key[1], self._kit.turn_number(r)) for r in requests])
        await asyncio.sleep(0)
        return [await self._sample(place, request) for place, request in enumerate(requests)]

    async def _sample(self, place: int, request: Any) -> Any:
        dice = random.Random(request.sampling.seed + 1000 * place + len(self.waves))
        text = "bye" if dice.random() < 0.3 else f'!wait {{"x": {dice.randint(0, 9)}}}'
        return await self._kit.scripted(text).generate(request)

    async def update_weights(self, weights: Any, version: int) -> None: ...

    async def close(self) -> None: ...


def outcome(kit: Any, latency: random.Random, **options: Any) -> tuple[Any, Any]:
    @tool
    async def wait(x: int) -> int:
        """Take a random while."""
        await asyncio.sleep(latency.random() * 0.004)
        return x * 2

    backend = Waves(kit)
    with kit.engine(backend, tools=[wait], deterministic=True, **options) as engine:
        found = list(engine.run([kit.task(n) for n in range(6)], chains=3, label="s"))
    return backend.waves, [_timeless(t) for t in found]


def _timeless(trajectory: Any) -> Any:
    turns = [
        replace(
            turn,
            generate_seconds=0.0,
            act_seconds=0.0,
            outcomes=tuple(replace(o, seconds=0.0) for o in turn.outcomes),
        )
        for turn in trajectory.turns
    ]
    return replace(trajectory, seconds=0.0, turns=tuple(turns))


@pytest.mark.parametrize("concurrency", [256, 4, 1])
def test_random_tool_latencies_change_nothing(kit: Any, concurrency: int) -> None:
    first = outcome(kit, random.Random(1), max_concurrency=concurrency, max_turns=5)
    for seed in (2, 3):
        assert outcome(kit, random.Random(seed), max_concurrency=concurrency, max_turns=5) == first
    waves, found = first
    assert [(t.group, t.chain_index) for t in found] == [(f"s/t{n}", c) for n in range(6) for c in range(3)]
    assert all(wave == sorted(wave) and len(wave) <= concurrency for wave in waves)
    assert sum(map(len, waves)) == sum(len(t.turns) for t in found)
    if concurrency == 256:
        assert len(waves[0]) == 18
        assert [{turn for _, _, turn in wave} for wave in waves] == [{n} for n in range(len(waves))]


def test_another_seed_gives_other_chains(kit: Any) -> None:
    assert outcome(kit, random.Random(1), seed=1)[1] != outcome(kit, random.Random(1), seed=2)[1]


def test_chains_submitted_in_a_pause_begin_in_one_wave(kit: Any) -> None:
    backend = Waves(kit)
    with kit.engine(backend, deterministic=True, max_turns=1) as engine:
        engine.pause()
        futures = [engine.submit(kit.task(), n, "g") for n in range(20)]
        time.sleep(0.05)
        assert backend.waves == []
        engine.resume()
        assert [f.result(30).status for f in futures if f] != []
    assert [len(wave) for wave in backend.waves] == [20]


def test_a_chain_that_ends_otherwise_never_holds_up_a_wave(kit: Any) -> None:
    """One is cancelled while it acts, one times out, one is cancelled while it waits; the others go on."""

    @tool(timeout=60)
    async def hang() -> str:
        """Never ends."""
        await asyncio.Event().wait()
        return ""

    def sample(request: Any) -> Any:
        return "!hang {}" if request.chain_key[1] in (0, 1) and not kit.turn_number(request) else "bye"

    backend = kit.scripted(sample)
    with kit.engine(backend, tools=[hang], deterministic=True, chain_timeout=1.0, max_concurrency=3) as engine:
        engine.pause()
        futures = [engine.submit(kit.task(), n, "g") for n in range(6)]
        engine.resume()
        kit.wait_until(lambda: futures[2].done())
        futures[0].cancel()
        futures[4].cancel()
        found = [f.result(30).status for f in futures if not f.cancelled()]
    assert found == [C.TIMEOUT, C.COMPLETED, C.COMPLETED, C.COMPLETED]


def test_a_wave_that_fails_aborts_its_chains_and_the_next_goes_on(kit: Any) -> None:
    backend = kit.scripted(lambda r: kit.backend_turn("x", error=RuntimeError("lost") if r.chain_key[2] < 3 else None))
    with kit.engine(backend, deterministic=True) as engine:
        first = list(engine.run([kit.task()], chains=3))
        second = list(engine.run([kit.task()], chains=3))
    assert [t.status for t in first] == [C.ABORTED] * 3
    assert all("lost" in t.error for t in first)
    assert [t.status for t in second] == [C.COMPLETED] * 3


def test_fewer_environments_than_chains(kit: Any) -> None:
    """Chains that could only get an environment after the next wave do not count for it."""
    manager = ResourceManager(InProcessCoordinator({"object": 2}), {"object": ObjectProvider()})
    spec = ResourceSpec.make("object", f"{Path(__file__).with_name('worlds.py')}:Corridor")
    options = {"agent": TextActionAgent(), "reward": None, "environment": spec, "resources": manager}
    backend = kit.scripted("right", "right", "right")
    sizes: list[int] = []
    sample = backend.generate_wave

    async def wave(requests: Any) -> Any:
        sizes.append(len(requests))
        return await sample(requests)

    backend.generate_wave = wave
    with kit.engine(backend, deterministic=True, **options) as engine:
        found = list(engine.run([kit.task()], chains=6))
    assert [(t.status.value, t.error, t.reward) for t in found] == [("completed", None, 1.5)] * 6
    assert sizes == [2] * 9
    asyncio.run(manager.close())


def test_a_backend_without_waves_is_refused(kit: Any) -> None:
    class Single:
        weight_version = 0
        max_model_len = None

        async def generate(self, request: Any) -> Any: ...

    with pytest.raises(UsageError, match="Single cannot sample in waves"):
        kit.engine(Single(), deterministic=True)
