"""The facade for scripts: an agent over a model, run and streamed with a few lines.

::

    agent = HFAgent(model_name_or_path="Qwen/Qwen2.5-3B-Instruct", tools=[calculator], template="qwen2.5",
                    backend_config={"backend": "hf"})
    result = await agent.run(messages=[{"role": "user", "content": "What is 3 * 4?"}], max_turns=3, num_chains=1)
    print(result.trajectories, result.rewards)
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType, UnionType
from typing import Any, TypeAlias

from agentfly_core.events import Event, FinishedEvent, Notifier, ToolEvent, TurnEvent
from agentfly_core.plugins import Plugins
from agentfly_core.recipes.assemble import build_reward, build_tool
from agentfly_core.recipes.calling import build
from agentfly_core.recipes.data import conversation_tasks
from agentfly_core.recipes.locate import find_model
from agentfly_core.rollout import Engine
from agentfly_core.types import (
    GenerationBackend,
    Message,
    ResourceManager,
    Reward,
    SamplingParams,
    Tool,
    Trajectory,
    UnknownName,
    UsageError,
)

Conversation: TypeAlias = "Sequence[Message] | Mapping[str, Any]"

__all__ = ["Event", "FinishedEvent", "HFAgent", "RunResult", "ToolEvent", "TurnEvent"]

logger = logging.getLogger(__name__)

BACKEND_ALIASES = {"async_vllm": "vllm"}


@dataclass(frozen=True, slots=True)
class RunResult:
    """What ``HFAgent.run`` returns: trajectories by task, then by chain."""

    trajectories: tuple[Trajectory, ...]

    @property
    def rewards(self) -> list[float | None]:
        """One number a trajectory; None where it was not scored (``trajectory.unscored_reason`` says why)."""
        return [t.reward if t.scored else None for t in self.trajectories]


class HFAgent:
    """A tool-calling agent over a Hugging Face model. Usable from any event loop, by several callers at once.

    Args:
        model_name_or_path: model folder, hub id, or a name that an installed package offers.
        tools: tools made with ``@tool``, or names of registered ones.
        template: name of the chat template.
        backend_config: ``{"backend": NAME, **options}``; ``hf`` by default, ``async_vllm`` is an alias of ``vllm``.
        reward: made with ``@reward``, or the name of a registered one; None leaves trajectories unscored.
        template_options: of the template.
        agent: name of the agent type, with ``agent_options``.
        system_prompt: first message of conversations that have none.
        max_concurrency: chains at once.
        timeout: seconds a chain may take.
        seed: two agents with the same seed and the same calls in the same order sample the same.

    Raises:
        UsageError: a name, option, tool, reward or the tokenizer does not fit; the message says how to mend it.
    """

    def __init__(
        self,
        model_name_or_path: str | Path,
        tools: Sequence[Tool | str] = (),
        template: str = "qwen2.5",
        backend_config: Mapping[str, Any] | None = None,
        *,
        reward: Reward | str | None = None,
        template_options: Mapping[str, Any] | None = None,
        agent: str = "tool-calling",
        agent_options: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        max_concurrency: int = 256,
        timeout: float = 600.0,
        seed: int = 0,
        plugins: Plugins | None = None,
    ) -> None:
        from agentfly_core.templates import load_tokenizer

        _check_kind("template", template, str, "the name of a chat template")
        _check_kind("backend_config", backend_config, Mapping | None, "a mapping such as {'backend': 'hf'}")
        _check_kind("agent_options", agent_options, Mapping | None, "a mapping")
        _check_kind("template_options", template_options, Mapping | None, "a mapping")
        _check_kind("timeout", timeout, float | int, "a number of seconds")
        if isinstance(tools, str) or not isinstance(tools, Sequence):
            raise UsageError(f"tools must be a list of tools, got {tools!r:.80}")
        self.plugins = plugins or Plugins.load()
        model = find_model(str(model_name_or_path), Path.cwd())
        options = {**(agent_options or {}), **({} if system_prompt is None else {"system_prompt": system_prompt})}
        family = self.plugins.registry("templates").get(template)
        config = {"backend": "hf", **(backend_config or {})}
        backend_factory = self._backend_factory(str(config["backend"]))
        self._parts: dict[str, Any] = {
            "agent": build(f"agent {agent!r}", self.plugins.registry("agents").get(agent), options),
            "tools": [self._tool(tool) for tool in tools],
            "reward": self._reward(reward),
            "max_concurrency": max_concurrency,
            "chain_timeout": timeout,
            "seed": seed,
            "template": family.bind(load_tokenizer(model), **(template_options or {})),
        }
        name = config.pop("backend")
        self._backend: GenerationBackend = build(f"backend {name!r}", backend_factory, config, model=model)
        from agentfly_core.recipes.resources import build_resources

        resources = build_resources(self.plugins)
        self._parts["resources"] = resources
        self._engines: dict[int, Engine] = {}
        self._lock = threading.Lock()
        self._runs = itertools.count()
        self._listeners: dict[str, Callable[[Event], None]] = {}
        self._finalizer = weakref.finalize(self, _close, self._engines, self._backend, resources)

    async def run(
        self,
        messages: Sequence[Conversation] | Conversation,
        *,
        max_turns: int = 8,
        num_chains: int = 1,
        **options: Any,
    ) -> RunResult:
        """Run ``num_chains`` chains for each conversation to their ends. Cancelling it ends them.

        Args:
            messages: one conversation (a list of messages), a list of them, or a list of ``{"messages": ..., field:
                value}`` whose fields rewards can ask for.
            max_turns: turns a chain may take.
            options: fields of ``SamplingParams``: temperature, top_p, top_k, max_tokens (of one turn), stop, ...

        Raises:
            UsageError: the messages or options have another form, or the agent is closed.
        """
        futures = [f for f, _ in self._submit(messages, max_turns, num_chains, options)]
        result = RunResult(tuple(await asyncio.gather(*map(asyncio.wrap_future, futures))))
        if self._parts["reward"] is not None and (reasons := {t.unscored_reason for t in result.trajectories} - {None}):
            logger.warning("chains were not scored: %s", "; ".join(sorted(map(str, reasons))))
        return result

    async def stream(
        self,
        messages: Sequence[Conversation] | Conversation,
        *,
        max_turns: int = 8,
        num_chains: int = 1,
        **options: Any,
    ) -> AsyncIterator[Event]:
        """As ``run``, but yields what happens as it happens. Leaving the iterator early ends the chains."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def tell(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        chains = self._submit(messages, max_turns, num_chains, options, tell)
        try:
            for future, _ in chains:
                future.add_done_callback(lambda f: None if f.cancelled() else tell(FinishedEvent(f.result())))
            left = len(chains)
            while left:
                event = await events.get()
                left -= isinstance(event, FinishedEvent)
                yield event
        finally:
            for future, group in chains:
                future.cancel()
                self._listeners.pop(group, None)

    async def close(self) -> None:
        """End what still runs and free the model. Without it that happens when the agent is collected, or at exit."""
        await asyncio.to_thread(self._finalizer)

    async def __aenter__(self) -> HFAgent:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _submit(
        self,
        messages: Any,
        max_turns: int,
        num_chains: int,
        options: Mapping[str, Any],
        tell: Callable[[Event], None] | None = None,
    ) -> list[tuple[Future[Trajectory], str]]:
        tasks = conversation_tasks(messages)
        sampling = _sampling(options)
        _check_kind("num_chains", num_chains, int, "a whole number")
        _check_kind("max_turns", max_turns, int, "a whole number")
        if num_chains < 1 or max_turns < 1:
            raise UsageError(f"num_chains and max_turns must be at least 1, got {num_chains} and {max_turns}")
        number = next(self._runs)
        engine = self._engine(max_turns)
        chains = []
        for task in tasks:
            group = f"run-{number}/{task.id}"
            if tell is not None:
                self._listeners[group] = tell
            for index in range(num_chains):
                chains.append((engine.submit(task, index, group, sampling=sampling, split="eval"), group))
        return chains

    def _engine(self, max_turns: int) -> Engine:
        with self._lock:
            if not self._finalizer.alive:
                raise UsageError("this HFAgent is closed")
            if max_turns not in self._engines:
                # The engine must not keep the agent alive: it is closed when the agent is collected.
                notify = Notifier(self.plugins, self._listeners)
                self._engines[max_turns] = Engine(
                    **self._parts, backend=self._backend, max_turns=max_turns, notify=notify
                )
            return self._engines[max_turns]

    def _backend_factory(self, name: str) -> Callable[..., Any]:
        factory: Callable[..., Any] = self.plugins.registry("backends").get(BACKEND_ALIASES.get(name, name))
        return factory

    def _tool(self, tool: Any) -> Tool:
        if isinstance(tool, str):
            tool = build_tool(tool, {}, self.plugins, Path.cwd())
        if isinstance(tool, type) or not isinstance(tool, Tool):
            raise UsageError(f"tools: {tool!r:.80} is no tool; decorate the function with @tool")
        return tool

    def _reward(self, reward: Any) -> Reward | None:
        if isinstance(reward, str):
            return build_reward(reward, {}, self.plugins)
        if reward is not None and (isinstance(reward, type) or not isinstance(reward, Reward)):
            raise UsageError(f"reward: {reward!r:.80} is no reward; decorate the function with @reward")
        return reward


def _check_kind(name: str, value: object, kind: type | UnionType, meant: str) -> None:
    if not isinstance(value, kind):
        raise UsageError(f"{name} must be {meant}, got {value!r:.80}")


def _sampling(options: Mapping[str, Any]) -> SamplingParams:
    known = SamplingParams.__dataclass_fields__
    for name in options:
        if name not in known:
            hint = f"(a field that rewards read goes beside the messages: [{{'messages': ..., {name!r}: ...}}])"
            raise UnknownName("generation option", name, known, hint=hint)
    try:
        return replace(SamplingParams(), **options)
    except (TypeError, ValueError) as error:
        raise UsageError(f"generation options: {error}") from error


def _close(engines: dict[int, Engine], backend: GenerationBackend, resources: ResourceManager) -> None:
    for engine in engines.values():
        engine.close()

    async def close() -> None:
        try:
            await resources.close()
        except RuntimeError as error:  # at the interpreter's exit there are no threads: sandboxes end with this process
            logger.debug("resources were left to end with the process: %s", error)
        finally:
            await backend.close()

    def run() -> None:
        loop = asyncio.new_event_loop()  # asyncio.run would start a thread, which at the interpreter's exit it cannot
        try:
            loop.run_until_complete(close())
        finally:
            loop.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        run()
    else:  # the agent was collected while a coroutine ran: that loop cannot be waited for from within
        thread = threading.Thread(target=run, name="agentfly-close")
        thread.start()
        thread.join()
