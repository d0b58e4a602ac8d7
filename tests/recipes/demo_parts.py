"""A user's own plugin file: one of everything, light and real. Tests name it in their recipes' ``plugins``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from agentfly_core import hookimpl, reward, tool
from agentfly_core.templates import Rendered, TextTemplate, parse_hermes
from agentfly_core.types import MissingDependency, Observation, StepResult, Task


@tool
def double(x: int) -> int:
    """Twice a number.

    Args:
        x: the number.
    """
    return 2 * x


@reward
def is_right(final_response: str, answer: str) -> float:
    """1 if the answer is right."""
    return float(final_response.strip() == str(answer))


@reward
def short(final_response: str) -> float:
    """1 for at most three characters."""
    return float(len(final_response.strip()) <= 3)


class Scaled:
    """A reward factory's product: a constant."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor
        self.name = "scaled"
        self.fields = frozenset({"answer"})

    async def score(self, trajectory: Any, context: Any) -> Any:
        from agentfly_core.types import RewardResult

        return RewardResult(self.factor)


@dataclass(frozen=True)
class MiniFormat:
    name: ClassVar[str] = "mini"
    control: ClassVar[tuple[str, ...]] = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")
    stops: ClassVar[tuple[str, ...]] = ("<|end|>",)
    rewrites: ClassVar[bool] = False
    variables: ClassVar[dict[str, Any]] = {}

    def prompt(self, messages: Any, tools: Any) -> Rendered:
        out = Rendered()
        for message in messages:
            out.own(f"<|{message['role']}|>")
            out.content(message["content"])
            out.own("<|end|>")
        out.own("<|assistant|>")
        return out

    def observation(self, messages: Any) -> Rendered:
        return self.prompt(messages, ())

    def reply(self, message: Any, where: str) -> Rendered:
        out = Rendered()
        out.content(message["content"])
        return out

    def parse(self, text: str) -> Any:
        return parse_hermes(text)


class Mini:
    name = "mini"

    def bind(self, tokenizer: Any, *, history: Any = "append", loud: bool = False) -> TextTemplate:
        return TextTemplate(MiniFormat(), tokenizer, history)


class Counter:
    """Count down from the task's number to zero, one step at a time."""

    def __init__(self, start: int = 2) -> None:
        self.start = start

    @staticmethod
    def tasks(split: str, seed: int) -> Iterator[Task]:
        number = 0
        while True:
            yield Task(f"{split}-{seed}-{number}", (), {"n": number})
            number += 1

    async def reset(self, task: Task, seed: int) -> Observation:
        self.left = self.start
        return Observation(f"count down from {self.left}")

    async def step(self, action: str) -> StepResult:
        self.left -= 1
        return StepResult(str(self.left), reward=0.5, terminated=self.left == 0)

    async def close(self) -> None:
        pass


@dataclass
class StubLearner:
    """Keeps the learner's contract without learning: every step writes metrics, every second a checkpoint.

    All steps but the first ``quick`` take ``pause`` seconds.
    """

    pause: float = 0.0
    quick: int = 0
    fail_at: int = 0
    refuse: bool = False
    lacks: str = ""

    def check_installed(self, recipe: Any) -> None:
        if self.lacks:
            raise MissingDependency(self.lacks, "the learner 'stub'", f"{self.lacks}==1")

    def check(self, recipe: Any) -> list[str]:
        return ["train.steps: the stub refuses; use 3"] if self.refuse else []

    def train(self, recipe: Any, folder: Any, *, resume: bool = False, stop: Any = None) -> None:
        steps = recipe.recipe.train.steps
        latest = folder.checkpoints.latest() if resume else None
        done = latest[0] if latest else 0
        folder.update_status("running", step=done)
        if resume:
            folder.rewind(done)
        else:
            folder.metrics.append(0, {"eval/sampled/success": 0.1, "eval/sampled/reward": 0.2})
        for step in range(done + 1, steps + 1):
            time.sleep(self.pause if step > self.quick else 0)
            if step == self.fail_at:
                folder.update_status("failed", error="RuntimeError: boom")
                raise RuntimeError("boom")
            metrics = {"reward/mean": step / 10, "success": 0.5, "tools/calls_per_chain": 1.0}
            if step == steps:
                metrics |= {"eval/sampled/success": 0.9, "eval/sampled/reward": 1.0}
            folder.metrics.append(step, metrics)
            folder.update_status(step=step)
            recipe.plugins.notify("update_finished", step=step, metrics=metrics)
            if step % 2 == 0 or step == steps or stop.is_set():
                folder.checkpoints.save(step, lambda path: (path / "weights").touch())
            if stop.is_set() and step < steps:
                folder.update_status("stopped")
                return
        folder.update_status("finished")


def rows(split: str, seed: int, count: int = 10) -> list[dict[str, Any]]:
    return [{"prompt": f"{split} {seed} {n}", "answer": n} for n in range(count)]


def stream(split: str) -> Iterator[dict[str, Any]]:
    number = 0
    while True:
        yield {"id": f"{split}{number}", "prompt": f"say {number}", "answer": number}
        number += 1


def finite_stream() -> Iterator[dict[str, Any]]:
    yield from ({"prompt": letter, "answer": 0} for letter in "abc")


def tasks_not_rows() -> list[Task]:
    return [Task("own", ({"role": "user", "content": "hi"},), {"answer": 1})]


def junk() -> list[int]:
    return [1, 2]


def leaving() -> list[Any]:
    raise SystemExit(0)


def leaving_late() -> Iterator[dict[str, Any]]:
    yield {"prompt": "x"}
    raise SystemExit(0)


def empty() -> Iterator[dict[str, Any]]:
    return iter(())


def make_algorithm(clip: float = 0.2, kinds: tuple[str, ...] = ("a",)) -> Any:
    from agentfly_core.types import Needs

    class Algorithm:
        name = "stub"
        needs = Needs(groups=True)

        def advantages(self, batch: Any) -> Any:
            raise NotImplementedError

        def policy_loss(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    made = Algorithm()
    made.clip, made.kinds = clip, kinds  # type: ignore[attr-defined]
    return made


@hookimpl
def register_templates(register: Any) -> None:
    register(Mini())


@hookimpl
def register_rewards(register: Any) -> None:
    register(Scaled, name="scaled")


@hookimpl
def register_environments(register: Any) -> None:
    register(Counter, name="counter")


@hookimpl
def register_learners(register: Any) -> None:
    register(StubLearner, name="stub")


@hookimpl
def register_algorithms(register: Any) -> None:
    register(make_algorithm, name="stub")
