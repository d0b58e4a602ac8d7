"""Whether an environment keeps its contract (``types.Environment``)."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentfly_core.registry import import_target
from agentfly_core.testing.report import Report, settle, show
from agentfly_core.testing.samples import HOSTILE_TEXTS, sample_arguments
from agentfly_core.testing.targets import import_path
from agentfly_core.testing.task_lists import check_task_list
from agentfly_core.testing.tools import check_tool
from agentfly_core.types import Observation, ResourceSpec, StepResult, Task, ToolContext, ToolOutcome, is_content

ODD_ACTIONS = ("gibberish", *HOSTILE_TEXTS)


def check_environment(
    environment: Callable[..., Any] | str | Any,
    tasks: Iterable[Task],
    *,
    options: Mapping[str, Any] | None = None,
    actions: Sequence[str] = (),
    steps: int = 40,
    seed: int = 0,
    worker: bool | None = None,
    timeout: float = 30.0,
) -> None:
    """Play episodes and check that they are what chains rely on.

    Args:
        environment: a factory (the class, usually), its import path ``module:factory``, or an instance. Only with
            a factory it is checked that two instances share nothing, and that one works in a worker process.
        tasks: tasks to play; a finite number.
        options: the factory's arguments.
        actions: sensible actions, for a world without ``admissible_actions``.
        steps: actions of an episode at most.
        seed: for the choice of actions and for ``reset``.
        worker: whether to try it in a worker process too; None: if a worker could import the factory.
        timeout: seconds that one call may take.

    Raises:
        ConformanceError: with every violation found.
    """
    tasks = list(tasks)
    factory = import_target(environment) if isinstance(environment, str) else environment
    is_factory = inspect.isclass(factory) or (callable(factory) and not hasattr(factory, "reset"))
    target = environment if isinstance(environment, str) else import_path(factory) if is_factory else None
    name = getattr(factory, "__name__", type(factory).__name__)
    report = Report(f"environment {name!r}")
    given = dict(options or {})
    make = (lambda: factory(**given)) if is_factory else (lambda: factory)
    check = _Check(report, make, is_factory, tuple(actions), steps, seed, timeout)
    report.expect(bool(tasks), "no task was given", where="the call of this check", fix="pass some tasks to play")
    report.run(lambda: check.all(tasks), seconds=timeout * (len(tasks) + 2) * 4)
    if target is not None and worker is not False and check.episodes:
        report.run(lambda: check.in_worker(target, given), seconds=timeout * 6)
    elif worker:
        what = f"a worker process cannot import {show(factory)}"
        fix = "give a class or function at the top of an importable module, or its import path"
        report.add(what, where="the worker", fix=fix)
    check_task_list(report, factory)
    report.finish()


@dataclass
class _Episode:
    """What was done and what was seen."""

    task: Task
    actions: list[str] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)


class _Check:
    def __init__(
        self,
        report: Report,
        make: Callable[[], Any],
        is_factory: bool,
        actions: tuple[str, ...],
        steps: int,
        seed: int,
        timeout: float,
    ) -> None:
        self.report, self.make, self.is_factory, self.timeout = report, make, is_factory, timeout
        self.actions, self.steps, self.seed = actions, steps, seed
        self.episodes: list[_Episode] = []

    async def all(self, tasks: Sequence[Task]) -> None:
        world = self._new()
        if world is None:
            return
        for number, task in enumerate(tasks):
            episode = await self._play(world, task, random.Random(number))
            if episode is not None:
                self.episodes.append(episode)
        for episode in self.episodes:
            await self._replay(episode, world)
        for task in tasks[:1]:
            await self._odd_actions(world, task)
            await self._tools(world, task)
        await self._close(world, "close")
        if self.is_factory and (unused := self._new()) is not None:
            await self._close(unused, "close of an instance that was never reset")

    async def in_worker(self, target: str, options: Mapping[str, Any]) -> None:
        """The same episode in a process of its own."""
        from agentfly_core.resources import WorkerProvider

        episode, where = self.episodes[0], f"in a worker process ({target})"
        fix = "keep nothing that cannot be pickled in results, and nothing that only the main process has"
        with self.report.guard(where, fix):
            provider = WorkerProvider()
            handle = await provider.start(ResourceSpec.make("worker", target, options=options), run_id="check")
            try:
                seen = [await handle.call("reset", episode.task, self.seed, timeout=self.timeout)]
                seen += [await handle.call("step", action, timeout=self.timeout) for action in episode.actions]
            finally:
                await provider.stop(handle)
            own = [item for item in episode.seen if isinstance(item, Observation | StepResult)]
            self._equal(own, seen, where)

    def _new(self) -> Any:
        with self.report.guard("the factory", "make an instance from the options alone"):
            world = self.make()
            lacking = [member for member in ("reset", "step", "close") if not hasattr(world, member)]
            fix = "implement agentfly_core.types.Environment"
            if self.report.expect(not lacking, f"it lacks {', '.join(lacking)}", where="the environment", fix=fix):
                return world
        return None

    async def _play(self, world: Any, task: Task, rng: random.Random) -> _Episode | None:
        episode = _Episode(task)
        if not await self._reset(world, episode):
            return None
        for _ in range(self.steps):
            choices = await self._choices(world, episode) or ODD_ACTIONS[:1]
            action = rng.choice(choices)
            result = await self._step(world, action, task)
            if result is None:
                return None
            episode.actions.append(action)
            episode.seen.append(result)
            if result.done:
                await self._after_the_end(world, task)
                break
        return episode

    async def _reset(self, world: Any, episode: _Episode) -> bool:
        where = f"reset of task {episode.task.id!r}"
        fix = "begin the task, whatever state the instance is in: warm instances are used again"
        first = await self._do(lambda: world.reset(episode.task, self.seed), where, fix)
        if first is None:
            return False
        good = isinstance(first, Observation) and is_content(first.content)
        fix = "return an Observation of text (or of text and image parts)"
        self.report.expect(good, f"it gave {show(first)}", where=where, fix=fix)
        episode.seen.append(first)
        return good

    async def _step(self, world: Any, action: str, task: Task) -> StepResult | None:
        where = f"step {show(action)} in task {task.id!r}"
        fix = "answer an action that the world does not understand with an observation"
        result = await self._do(lambda: world.step(action), where, fix)
        if result is None:
            return None
        if not isinstance(result, StepResult) or not is_content(result.observation):
            fix = "return a StepResult whose observation is text (or text and image parts)"
            self.report.add(f"it gave {show(result)}", where=where, fix=fix)
            return None
        number = isinstance(result.reward, int | float) and math.isfinite(result.reward)
        fix = "give a finite float"
        self.report.expect(number, f"the reward is {show(result.reward)}", where=where, fix=fix)
        good = isinstance(result.terminated, bool) and isinstance(result.truncated, bool)
        fix = "give bools, not numbers or arrays of one"
        self.report.expect(good, "terminated or truncated is no bool", where=where, fix=fix)
        return result

    async def _choices(self, world: Any, episode: _Episode) -> list[str]:
        """Actions to choose from; what the world says of its state is part of what is seen."""
        task = episode.task
        if hasattr(world, "anchor"):
            where = f"anchor in task {task.id!r}"
            key = await self._do(lambda: settle(world.anchor()), where, "return the state's key as text")
            self.report.expect(isinstance(key, str), f"it gave {show(key)}", where=where, fix="return text")
            episode.seen.append(key)
        if not hasattr(world, "admissible_actions"):
            return list(self.actions)
        where, fix = f"admissible_actions in task {task.id!r}", "return a list of texts, each of which can be stepped"
        found = await self._do(lambda: settle(world.admissible_actions()), where, fix)
        texts = isinstance(found, Sequence) and not isinstance(found, str)
        texts = texts and all(isinstance(action, str) and action.strip() for action in found)
        if not self.report.expect(texts, f"it gave {show(found)}", where=where, fix=fix):
            return list(self.actions)
        episode.seen.append(list(found))
        return list(found)

    async def _after_the_end(self, world: Any, task: Task) -> None:
        """The engine steps no more; a world that others drive must at least not come alive again."""
        try:
            result = await world.step(ODD_ACTIONS[0])
        except Exception:
            return  # refusing is fine: no further step is allowed
        good = isinstance(result, StepResult) and result.done
        what = "a step after the end says that the episode goes on"
        fix = "stay over until the next reset"
        self.report.expect(good, what, where=f"step after the end of task {task.id!r}", fix=fix)

    async def _replay(self, episode: _Episode, used: Any) -> None:
        """The episode again: in a used instance, and in a new one while another plays beside it."""
        await self._follow(used, None, episode, "reset to the same task and seed")
        if self.is_factory:
            world, other = self._new(), self._new()
            if world is not None and other is not None:
                await self._follow(world, other, episode, "a second instance beside a third")
                for instance in (world, other):
                    await self._close(instance, "close")

    async def _follow(self, world: Any, beside: Any, episode: _Episode, where: str) -> None:
        again = _Episode(episode.task)
        if not await self._reset(world, again):
            return
        if beside is not None:
            await self._reset(beside, _Episode(replace(episode.task, id=f"{episode.task.id}-other")))
        running, rng = beside is not None, random.Random(0)
        for action in episode.actions:
            await self._choices(world, again)
            result = await self._step(world, action, episode.task)
            if running:
                moved = await self._step(beside, rng.choice(episode.actions), episode.task)
                running = moved is not None and not moved.done
            if result is None:
                return
            again.seen.append(result)
            if result.done:
                break
        self._equal(episode.seen, again.seen, f"{where}, task {episode.task.id!r}")

    def _equal(self, first: Sequence[Any], again: Sequence[Any], where: str) -> None:
        for a, b in zip(map(_visible, first), map(_visible, again), strict=False):
            if a != b:
                fix = "let an episode depend on the task, the seed and the actions alone: no global state or randomness"
                self.report.add(
                    "the same actions gave another episode", where=f"{where}: {show(a)}, {show(b)}", fix=fix
                )
                return

    async def _odd_actions(self, world: Any, task: Task) -> None:
        if not await self._reset(world, _Episode(task)):
            return
        for action in ODD_ACTIONS:
            result = await self._step(world, action, task)
            if result is None or result.done:
                await self._reset(world, _Episode(task))

    async def _tools(self, world: Any, task: Task) -> None:
        if not hasattr(world, "tools"):
            return
        found = await self._do(lambda: settle(world.tools()), "tools", "return a sequence of tools")
        for tool in found or ():
            with self.report.guard("tools", "see check_tool"):
                check_tool(tool, timeout=self.timeout)
            arguments = sample_arguments(tool.parameters)
            if arguments is not None and await self._reset(world, _Episode(task)):
                where = f"tool {tool.name!r} called with {show(arguments)}"
                fix = "answer with an outcome: thoughtless arguments are an observation, not an exception"
                context = ToolContext(task_id=task.id, fields=task.fields, environment=world)
                outcome = await self._do(lambda t=tool, a=arguments, c=context: t.call(a, c), where, fix)  # type: ignore[misc]
                self.report.expect(isinstance(outcome, ToolOutcome), f"it gave {show(outcome)}", where=where, fix=fix)
        names = [tool.name for tool in found or ()]
        good = len(set(names)) == len(names)
        self.report.expect(good, f"two have one name: {names}", where="tools", fix="give each a name of its own")

    async def _close(self, world: Any, where: str) -> None:
        for time in ("", " a second time"):
            await self._do(world.close, f"{where}{time}", "let close do nothing where there is nothing to free")

    async def _do(self, call: Callable[[], Any], where: str, fix: str) -> Any:
        return await self.report.attempt(call, where=where, fix=fix, seconds=self.timeout)


def _visible(item: Any) -> Any:
    """What a chain sees of it; ``info`` may hold times and the like."""
    if isinstance(item, StepResult):
        return item.observation, float(item.reward), item.terminated, item.truncated
    return item.content if isinstance(item, Observation) else item
