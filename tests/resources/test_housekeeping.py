"""What goes on beside the leases: warm instances, idle ones that others want, drains, sweeps, numbers, the status."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfly_core.resources import InProcessCoordinator, ResourceManager
from agentfly_core.resources.gauges import Gauges
from agentfly_core.resources.lease import HeldLease
from agentfly_core.resources.marks import RunMark, crashed_runs, living_runs, swept
from agentfly_core.types import Isolation, LeaseLost, ResourceError, ResourceSpec, Ticket

ROOT = str(Path(__file__).parents[2])


class Box:
    """An instance that is told how long it may be used."""

    def __init__(self, spec: ResourceSpec) -> None:
        self.spec = spec
        self.valid_until = 0.0


class Boxes:
    """Boxes that exist from start to stop."""

    isolation = Isolation.NONE

    def __init__(self) -> None:
        self.alive: list[Box] = []
        self.most = self.failures_left = 0
        self.left: Counter[str] = Counter()
        self.healthy = True

    async def start(self, spec, *, run_id):
        if self.failures_left:
            self.failures_left -= 1
            raise OSError("no room")
        self.alive.append(Box(spec))
        self.most = max(self.most, len(self.alive))
        return self.alive[-1]

    async def health(self, instance):
        return self.healthy

    async def reset(self, instance):
        return True

    async def stop(self, instance):
        if instance in self.alive:
            self.alive.remove(instance)

    async def runs(self):
        return frozenset(run for run, n in self.left.items() if n)

    async def sweep(self, run_id):
        return self.left.pop(run_id, 0)


A, B = ResourceSpec("box", "a"), ResourceSpec("box", "b")


async def until(true: Callable[[], bool]) -> None:
    """Wait for it; the test's own time limit ends what never comes."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def idle(manager: ResourceManager) -> int:
    return manager.status()["kinds"].get("box", {}).get("idle", 0)


def test_warm_instances_are_started_ahead_and_replaced():
    async def main():
        boxes = Boxes()
        boxes.failures_left = 1  # the first start fails and is tried again
        manager = ResourceManager(InProcessCoordinator({"box": 3}), {"box": boxes}, warm={A: 2})
        await until(lambda: idle(manager) == 2)
        ready = list(boxes.alive)
        async with manager.lease(A, owner="a") as lease:
            assert lease.resource in ready
            await until(lambda: idle(manager) == 2)
            async with manager.lease(A, owner="b") as second:  # nothing is left for another warm one
                assert second.resource in boxes.alive
                assert len(boxes.alive) <= 3
        assert boxes.most <= 3
        manager.keep_warm(A, 0)
        with pytest.raises(ResourceError, match="together at most 64 may idle"):
            manager.keep_warm(A, 65)
        await manager.close()
        assert boxes.alive == []

    asyncio.run(main())


def test_what_is_idle_in_one_process_makes_room_for_another():
    """Two managers over one coordinator are what two processes are to it."""

    async def main():
        coordinator = InProcessCoordinator({"box": 2})
        boxes = Boxes()
        one, two = (ResourceManager(coordinator, {"box": boxes}) for _ in range(2))
        async with one.lease(A, owner="a"), one.lease(A, owner="b"):
            pass
        assert idle(one) == 2
        async with two.lease(A, owner="c"):
            assert idle(one) == 1
            async with two.lease(A, owner="d"):
                assert (idle(one), len(boxes.alive)) == (0, 2)
        assert boxes.most == 2
        await one.close()
        await two.close()
        assert (boxes.alive, (await coordinator.status())[0].idle) == ([], 0)

    asyncio.run(main())


def test_idle_instances_whose_shares_are_lost_are_stopped():
    async def main():
        coordinator, boxes = InProcessCoordinator({"box": 1}), Boxes()
        manager = ResourceManager(coordinator, {"box": boxes}, ttl=3)  # heard of every second
        async with manager.lease(A, owner="a"):
            pass
        await coordinator.attend(manager.run_id, ttl=0.001)  # as if nothing had been heard of it for three
        ticket = await coordinator.acquire("box", "other")
        await until(lambda: not boxes.alive)
        await coordinator.release(ticket)
        await manager.close()

    asyncio.run(main())


def test_an_instance_knows_how_long_its_lease_holds():
    async def main():
        clock = asyncio.get_running_loop().time
        boxes = Boxes()
        manager = ResourceManager(InProcessCoordinator({"box": 1}), {"box": boxes}, ttl=60, renew_every=0.05)
        async with manager.lease(A, owner="a") as lease:
            box = lease.resource
            first = box.valid_until
            assert clock() < first <= clock() + 50  # five sixths of its ttl
            await until(lambda: box.valid_until > first)
            boxes.healthy = False
            await until(lambda: lease.lost)
            assert box.valid_until < clock()
        await until(lambda: manager.status()["kinds"]["box"]["failures"] == {"lost": 1})
        await manager.close()

    asyncio.run(main())


def test_a_drain_refuses_new_leases_and_waits_for_the_old_ones():
    async def main():
        boxes = Boxes()
        manager = ResourceManager(InProcessCoordinator(), {"box": boxes})
        async with manager.lease(A, owner="a") as lease:
            drain = asyncio.create_task(manager.drain(30))
            await until(lambda: manager.status()["refusal"] == "is being drained")
            with pytest.raises(ResourceError, match="is being drained"):
                async with manager.lease(A, owner="late"):
                    pass
            assert lease.resource in boxes.alive
        assert await drain
        assert boxes.alive == []

        manager = ResourceManager(InProcessCoordinator(), {"box": boxes})
        async with manager.lease(A, owner="slow") as lease:
            assert not await manager.drain(0.05)
            with pytest.raises(LeaseLost, match="closed"):
                _ = lease.resource

    asyncio.run(main())


def test_sigterm_lets_leases_end_and_ends_by_the_signal(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import asyncio, sys
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            from test_housekeeping import A, Boxes
            from agentfly_core.resources import InProcessCoordinator, ResourceManager, drain_on_sigterm

            class Loud(Boxes):
                async def stop(self, instance):
                    print("stopped", flush=True)

            async def main():
                manager = ResourceManager(InProcessCoordinator(), {{"box": Loud()}})
                with drain_on_sigterm(manager):
                    async with manager.lease(A, owner="a"):
                        print("leased", flush=True)
                        while not manager.status()["refusal"]:
                            await asyncio.sleep(0.01)
                        print("ended", flush=True)
                    await asyncio.sleep(600)

            asyncio.run(main())
            """
        )
    )
    env = {**os.environ, "PYTHONPATH": ROOT}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout.readline() == "leased\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "ended\nstopped\n"
        assert process.wait(60) == -signal.SIGTERM


def test_a_mark_tells_living_runs_from_crashed_ones():
    living = RunMark("living")
    assert living.uses("box")
    assert not living.uses("box")
    code = "import os; from agentfly_core.resources.marks import RunMark; m = RunMark('dead'); m.uses('box'); "
    code += "m.uses('other'); os._exit(1)"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": ROOT}, check=False)
    assert living_runs() == {"living"}
    with crashed_runs() as crashed:
        assert crashed == {"dead": {"box", "other"}}
        with crashed_runs() as others:
            assert others == {}  # somebody is at it
        swept("dead", frozenset({"other"}))
    with crashed_runs() as crashed:
        assert crashed == {"dead": {"box"}}
        swept("dead", frozenset({"box"}))
    with crashed_runs() as crashed:
        assert crashed == {}
    living.remove()
    assert living_runs() == frozenset()


def test_the_first_lease_of_a_kind_sweeps_what_a_crashed_run_left_of_it():
    async def main():
        code = "import os; from agentfly_core.resources.marks import RunMark; RunMark('dead').uses('box'); os._exit(1)"
        command = [sys.executable, "-c", code]
        await asyncio.to_thread(subprocess.run, command, env={**os.environ, "PYTHONPATH": ROOT}, check=False)
        boxes = Boxes()
        boxes.left["dead"] = 3
        boxes.left["foreign"] = 1  # of another machine, or user: nobody knows whether it lives
        manager = ResourceManager(InProcessCoordinator(), {"box": boxes})
        async with manager.lease(A, owner="a"):
            await until(lambda: boxes.left["dead"] == 0)
        boxes.left[manager.run_id] = 1  # something of its own that it lost sight of
        await manager.close()
        assert boxes.left == {"foreign": 1}

    asyncio.run(main())


def test_the_status_file_says_who_has_what(tmp_path):
    async def main():
        file = tmp_path / "resources.json"
        coordinator = InProcessCoordinator({"box": 1})
        manager = ResourceManager(coordinator, {"box": Boxes()}, status_file=file)

        def written() -> dict:
            return json.loads(file.read_text()) if file.exists() else {}

        async with manager.lease(A, owner="chain-1"):
            waiting = asyncio.ensure_future(coordinator_user(manager))
            await until(lambda: bool(written().get("waiting")))
            status = written()
            assert [(x["owner"], x["kind"], x["what"], x["state"]) for x in status["leases"]] == [
                ("chain-1", "box", "a", "held")
            ]
            assert status["waiting"][0]["owner"] == "chain-2"
            assert status["kinds"]["box"] == {
                "leased": 1, "idle": 0, "waiting": 1, "warm_minimum": 0, "failures": {},
            }  # fmt: skip
            assert (status["run"], status["pid"]) == (manager.run_id, os.getpid())
        await waiting
        await manager.close()
        assert not file.exists()

    asyncio.run(main())


async def coordinator_user(manager: ResourceManager) -> None:
    async with manager.lease(B, owner="chain-2"):
        pass


def test_gauges_average_over_time():
    now = 0.0
    gauges = Gauges(lambda: now)
    gauges.leased("box", 1)
    gauges.took("box", "wait", 0.5)
    gauges.took("box", "start", 2.0)
    now = 1.0
    gauges.leased("box", 1)
    gauges.took("box", "wait", 1.5)
    gauges.count("box", "reused")
    gauges.count("box", "lost")
    now = 4.0
    assert gauges.report() == {
        "resources/box/allocated_mean": 7 / 4,  # one for a second, two for three
        "resources/box/allocated_max": 2,
        "resources/box/leases": 2,
        "resources/box/reused": 1,
        "resources/box/failures": 1,
        "resources/box/wait_seconds_mean": 1.0,
        "resources/box/wait_seconds_max": 1.5,
        "resources/box/start_seconds_mean": 2.0,
        "resources/box/start_seconds_max": 2.0,
    }
    gauges.leased("box", -1)
    now = 6.0
    report = gauges.report()
    assert (report["resources/box/allocated_mean"], report["resources/box/allocated_max"]) == (1.0, 2)
    assert gauges.failures == {("box", "lost"): 1}


def test_a_lease_is_either_lost_or_given_back():
    """A renewal that fails because the lease has just ended must not touch the instance, which another may hold."""
    box = Box(A)
    given_back, lost = HeldLease(A, "a"), HeldLease(A, "b")
    ticket = Ticket("t", "box", "a", 1, 1, 0.0)
    for lease in (given_back, lost):
        lease.granted(ticket, 60.0)
        lease.started(box, math.inf)
    assert given_back.settle()
    assert not given_back.lose("its ticket is gone")
    assert not given_back.lost
    given_back.renewed(ticket, 0.0, 1.0)
    assert box.valid_until == math.inf
    assert lost.lose("it ran out")
    assert not lost.settle()
    assert not lost.lose("again")
    assert (lost.lost, box.valid_until) == ("it ran out", -math.inf)
