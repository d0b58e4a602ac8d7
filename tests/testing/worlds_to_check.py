"""Worlds that keep or break the contract, importable by path in any process."""

from __future__ import annotations

import itertools
import os
import random

from agentfly_core.environments import ActionTool, TextEnvironment
from agentfly_core.types import Observation, StepResult, Task


class Counting(TextEnvironment):
    """Count to three; keeps the contract."""

    def begin(self, task, seed):
        self.count, self.goal = 0, random.Random(f"{task.id}{seed}").randrange(3, 6)
        return f"Count to {self.goal}."

    def act(self, action):
        if action == "up":
            self.count += 1
        over = self.count >= self.goal
        return StepResult(f"{self.count}", reward=float(over), terminated=over)

    def admissible_actions(self):
        return ["up", "wait"]

    def anchor(self):
        return str(self.count)

    @staticmethod
    def tools():
        return (ActionTool("up", "Count up by one."),)

    @staticmethod
    def tasks(split, seed=0):
        return (Task(f"{split}-{n}") for n in itertools.count())


class Refusing(Counting):
    def act(self, action):
        if action not in ("up", "wait"):
            raise KeyError(action)
        return super().act(action)


class Random(Counting):
    def begin(self, task, seed):
        super().begin(task, seed)
        return f"Count to {random.random()}."


class Shared(Counting):
    total: list[str] = []  # noqa: RUF012  (that instances share it is the fault)

    def act(self, action):
        self.total.append(action)
        return StepResult(f"{len(self.total)}")

    def begin(self, task, seed):
        self.total.clear()
        return super().begin(task, seed)


class ClosesOnce(Counting):
    closed = False

    async def close(self):
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class Undead(Counting):
    async def step(self, action):
        result = self.act(action)
        if result.done:
            self.count = 0
        return result


class TupleSteps(Counting):
    async def step(self, action):
        return "seen", 0.0, False, {}


class Sync(Counting):
    def reset(self, task, seed):
        return Observation(self.begin(task, seed))


class Sentence(Counting):
    def admissible_actions(self):
        return "up or wait"


class NoNumber(Counting):
    def act(self, action):
        return StepResult("ok", reward=float("nan"))


class OneId(Counting):
    @staticmethod
    def tasks(split, seed=0):
        return (Task("the task") for _ in itertools.count())


class OnlyHere(Counting):
    """Speaks of the process that it was first imported in."""

    def begin(self, task, seed):
        return f"{super().begin(task, seed)} {os.getpid()}"


class Hanging(Counting):
    async def step(self, action):
        import asyncio

        await asyncio.sleep(3600)
