"""Worker processes that share one capacity through a real Redis: one is killed, then the server is restarted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

WORKER = str(Path(__file__).with_name("cluster_worker.py"))
CAPACITY, LEASE_TIME = 5, 8.0


class Cluster:
    def __init__(self, server, folder: Path) -> None:
        self.server, self.log = server, folder / "events"
        self.log.touch()
        self.pool = server.known("cluster")
        self.processes: dict[str, subprocess.Popen] = {}

    def start(self, name: str, *, held: int, users: int) -> None:
        arguments = [self.server.url, self.pool, str(CAPACITY), str(LEASE_TIME), str(self.log), name]
        self.processes[name] = subprocess.Popen([sys.executable, WORKER, *arguments, str(held), str(users)])

    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def until(self, seen: Callable[[list[dict]], bool]) -> None:
        while not seen(self.events()):
            assert all(p.poll() in (None, -signal.SIGKILL) for p in self.processes.values())
            time.sleep(0.1)

    def leases(self, name: str, *, after: int = 0) -> int:
        return sum(e["event"] == "leased" and e["process"] == name for e in self.events()[after:])

    def end(self, name: str) -> int:
        Path(f"{self.log}.end-{name}").touch()
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes[name].wait(60)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def living(events: list[dict], process: str) -> int:
    boxes = {e["box"] for e in events if e["event"] == "start" and e["process"] == process}
    return len(boxes - {e["box"] for e in events if e["event"] == "stop"})


def good_until(events: list[dict]) -> dict[str, float]:
    """Box -> when the server may have given its share away at the earliest, had its process fallen silent.

    For a leased one a lease time after its ticket was granted, or after its last renewal was asked for. The others
    count until the process is killed: which share was theirs in that moment is not in the log.
    """
    renewed = {e["ticket"]: e["asked"] for e in events if e["event"] == "renewed"}
    good: dict[str, float] = {}
    for event in events:
        if event["event"] in ("held", "leased"):
            good[event["box"]] = max(event["since"], renewed.get(event["ticket"], 0.0)) + LEASE_TIME
        elif event["event"] in ("start", "returned"):
            good[event["box"]] = events[-1]["time"]
    return good


def most_at_once(events: list[dict], killed: str) -> int:
    """The greatest number of boxes at any moment; those of the killed process count as long as their shares do."""
    until = good_until([e for e in events if e["process"] == killed])
    alive: set[str] = set()
    peak = 0
    for event in events:
        alive -= {box for box in alive if until.get(box, event["time"]) < event["time"]}
        if event["event"] == "start":
            alive.add(event["box"])
        elif event["event"] == "stop":
            alive.discard(event["box"])
        peak = max(peak, len(alive))
    return peak


def test_a_kill_and_a_restart_of_redis_never_let_the_capacity_be_exceeded(redis_servers, tmp_path, capsys):
    server = redis_servers()
    cluster = Cluster(server, tmp_path)
    try:
        cluster.start("survivor", held=1, users=4)
        cluster.start("victim", held=2, users=2)
        cluster.until(
            lambda events: (
                sum(e["event"] == "held" for e in events) == 3
                and cluster.leases("survivor") >= 20
                and cluster.leases("victim") >= 20
            )
        )

        killed_at = time.time()
        cluster.processes["victim"].kill()
        cluster.processes["victim"].wait()
        cluster.until(lambda events: living(events, "survivor") == CAPACITY)
        events = cluster.events()
        assert living([e for e in events if e["time"] < killed_at], "survivor") < CAPACITY  # the victim held two
        back = next(
            e["time"]
            for i, e in enumerate(events)
            if e["time"] > killed_at and living(events[: i + 1], "survivor") == CAPACITY
        )
        back_after = back - killed_at
        assert back_after < LEASE_TIME + 10  # within the limit, and what a loaded machine adds

        server.kill()
        restarted = time.time()
        server.start()
        seen = len(cluster.events())
        cluster.start("newcomer", held=1, users=2)
        cluster.until(lambda _: cluster.leases("survivor", after=seen) >= 20 and cluster.leases("newcomer") >= 20)

        assert cluster.end("survivor") == -signal.SIGTERM
        assert cluster.end("newcomer") == -signal.SIGTERM
    finally:
        cluster.close()

    events = cluster.events()
    assert [e for e in events if e["event"] in ("lost", "failed")] == []
    granted = [e["since"] for e in events if e["event"] == "leased"]
    assert not [since for since in granted if restarted < since < restarted + LEASE_TIME - 0.01]
    assert most_at_once(events, "victim") == CAPACITY
    assert living(events, "survivor") == living(events, "newcomer") == 0  # both stopped all they had started
    with capsys.disabled():
        print(f"\n{len(granted)} leases, at most {CAPACITY} at once; the dead worker's back after {back_after:.1f} s")
