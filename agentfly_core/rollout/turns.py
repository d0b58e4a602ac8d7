"""The turns of one chain: sample, act, hand the observation back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TypeVar

from agentfly_core.rollout.agents import continuation, continues
from agentfly_core.rollout.calls import run_calls
from agentfly_core.rollout.clock import Clock
from agentfly_core.rollout.contents import images_of, text_length
from agentfly_core.rollout.environments import RecordingEnvironment, merge_tools
from agentfly_core.rollout.record import Record, TurnRecord
from agentfly_core.rollout.scope import contained
from agentfly_core.rollout.setup import Setup, list_schemas
from agentfly_core.tools.results import to_content
from agentfly_core.types import (
    Appended,
    CallTools,
    ChainStatus,
    Continue,
    Decision,
    Finish,
    Generation,
    GenerationRequest,
    History,
    Message,
    NewSegment,
    Observation,
    StepEnvironment,
    ToolContext,
    ToolOutcome,
    UsageError,
    derive_seed,
    text_of,
)

T = TypeVar("T")

LONG_TEXT = 20_000
"""Characters from which on encoding is done in a thread, so that it holds up no other chain (some 10 ms)."""


class ChainEnded(Exception):
    """The chain cannot go on, for a reason that is an error."""

    def __init__(self, status: ChainStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Turns:
    """Plays a chain's turns into its record."""

    def __init__(
        self,
        setup: Setup,
        record: Record,
        clock: Clock,
        scope: AsyncExitStack,
        environment: RecordingEnvironment | None,
    ) -> None:
        self._setup = setup
        self._record = record
        self._job = record.job
        self._clock = clock
        self._scope = scope
        self._environment = environment
        self._tools = setup.tools
        self._schemas = setup.schemas
        self._history = History(record.messages)

    async def play(self) -> ChainStatus:
        """Turns until one ends the chain.

        Raises:
            ChainEnded: with a status and the reason.
        """
        await self._open()
        for index in range(self._setup.max_turns):
            turn = await self._sample(index)
            started = time.perf_counter()
            try:
                status = await self._act(turn, last=index + 1 == self._setup.max_turns)
            finally:
                turn.act_seconds = time.perf_counter() - started
                if self._environment is not None:
                    turn.reward = self._environment.take_reward()
            self._notify("turn_finished", turn=turn.turn())
            if status is not None:
                return status
        return ChainStatus.MAX_TURNS

    async def _open(self) -> None:
        """Reset the environment, and encode the prompt."""
        setup = self._setup
        first: Observation | None = None
        if self._environment is not None:
            # Chains of a group play the same episode: their baseline compares what they did with it.
            seed = derive_seed(setup.seed, self._job.group, self._job.task.id, "environment")
            first = await contained(self._environment.reset(self._job.task, seed), what="reset")
            first = replace(first, content=to_content(first.content, setup.max_observation_chars))
            self._tools = merge_tools(setup.tools, await self._environment.tools())
            if self._tools != setup.tools:
                self._schemas = list_schemas(setup.agent, self._tools.values())
        self._record.messages += setup.agent.start(self._job.task, first, self._tools)
        ids = await self._prompt()
        if not self._fits(len(ids)):
            raise ChainEnded(
                ChainStatus.MAX_TOKENS,
                f"the prompt has {len(ids)} tokens, which leaves nothing to sample of the limit of {setup.limit}; "
                "shorten it, or raise rollout.max_tokens (the model's own limit holds too)",
            )
        self._record.builder.open(ids, images_of(self._record.messages))

    async def _prompt(self) -> list[int]:
        messages, last = self._record.messages, self._setup.last_prompt
        ids = last.find(messages, self._schemas)
        if ids is None:
            ids = await self._encode(lambda: self._setup.template.encode_prompt(messages, self._schemas), messages)
            last.keep(messages, self._schemas, ids)
        return ids

    async def _sample(self, index: int) -> TurnRecord:
        setup, job, builder = self._setup, self._job, self._record.builder
        anchor = None
        if self._environment is not None and self._environment.has_anchor:
            anchor = await contained(self._environment.anchor(), what="anchor")
        room = job.sampling.max_tokens
        if setup.limit is not None:
            room = min(room, setup.limit - len(builder.ids))
        root = setup.seed if job.sampling.seed is None else job.sampling.seed
        seed = derive_seed(root, job.group, job.task.id, job.chain_index, index)
        request = GenerationRequest(
            prompt_ids=tuple(builder.ids),
            sampling=replace(job.sampling, max_tokens=room, seed=seed),
            images=tuple(builder.images),
            chain_key=(job.group, job.chain_index, job.number),
        )
        started = time.perf_counter()
        generation = await setup.generate(request, job.order, self._clock)
        if len(generation.token_ids) > room:
            raise ChainEnded(
                ChainStatus.ABORTED, f"the backend sampled {len(generation.token_ids)} tokens where {room} were asked"
            )
        builder.sampled(index, generation)
        turn = TurnRecord(index, builder.index, generation, anchor, time.perf_counter() - started)
        self._record.turns.append(turn)
        ids = generation.token_ids
        raw = setup.template.decode(ids[:-1] if self._closed(generation) else ids)
        self._record.messages.append({"role": "assistant", "content": raw})
        self._history.last, self._history.last_raw = generation, raw
        turn.assistant = setup.template.parse(generation)
        if generation.finish_reason != "stop":
            turn.assistant = replace(turn.assistant, cut=True)
        return turn

    async def _act(self, turn: TurnRecord, *, last: bool) -> ChainStatus | None:
        """What follows from a turn; None if the chain goes on."""
        if turn.generation.finish_reason == "abort":
            raise ChainEnded(ChainStatus.ABORTED, "the backend aborted the generation")
        if turn.assistant.cut and not self._fits(len(self._record.builder.ids)):
            return ChainStatus.MAX_TOKENS
        context = self._setup.context(self._job, turn.index, self._record.state, self._scope, self._environment)
        decision = self._setup.agent.decide(turn.assistant, self._tools, context)
        if isinstance(decision, Finish):
            self._record.final_response = decision.response
            return ChainStatus.MAX_TOKENS if turn.assistant.cut else ChainStatus.COMPLETED
        reply = await self._carry_out(decision, turn, context)
        if self._environment is not None:
            if self._environment.error is not None:
                raise ChainEnded(ChainStatus.ENVIRONMENT_ERROR, self._environment.error)
            if self._environment.done:
                return ChainStatus.COMPLETED
        final = next((outcome for outcome in turn.outcomes if outcome.final), None)
        if final is not None:
            self._record.final_response = text_of(final.content)
            return ChainStatus.COMPLETED
        return None if last else await self._hand_back(turn, reply)

    async def _carry_out(self, decision: Decision, turn: TurnRecord, context: ToolContext) -> list[Message]:
        """Act, and what the model is told of it."""
        agent = self._setup.agent
        if isinstance(decision, CallTools):
            turn.outcomes = await run_calls(decision.calls, self._tools, context, self._called(turn.index))
            return agent.observe(turn.outcomes)
        if isinstance(decision, StepEnvironment):
            if self._environment is None:
                raise UsageError(f"agent {agent.name!r} acts in an environment, but there is none: set `environment`")
            result = await contained(self._environment.step(decision.action), what="step")
            shown = to_content(result.observation, self._setup.max_observation_chars)
            return agent.observe_step(replace(result, observation=shown))
        if isinstance(decision, Continue):
            return list(decision.messages)
        raise UsageError(f"agent {agent.name!r} decided on {decision!r}, which is no Decision")

    async def _hand_back(self, turn: TurnRecord, reply: list[Message]) -> ChainStatus | None:
        """Extend the tokens by an observation, if it leaves room to sample."""
        builder, messages = self._record.builder, self._record.messages
        if not reply:
            raise UsageError(f"agent {self._setup.agent.name!r} hands nothing back after a turn that does not finish")
        step = await self._extend(turn.generation, reply)
        if isinstance(step, NewSegment):
            if not self._fits(len(step.prompt_ids)):
                return ChainStatus.MAX_TOKENS
            builder.open(step.prompt_ids, images_of([*messages, *reply]))
        else:
            if not self._fits(len(builder.ids) + len(step.ids)):
                return ChainStatus.MAX_TOKENS
            builder.observed(step.ids, images_of(reply))
        turn.observation = tuple(reply)
        messages += reply
        return None

    async def _extend(self, generation: Generation, reply: list[Message]) -> Appended | NewSegment:
        setup, messages = self._setup, self._record.messages
        if continues(setup.agent) and not self._closed(generation):
            text = continuation(reply)
            return await self._encode(lambda: Appended(setup.template.encode_continuation(text)), reply)
        self._history.segment_ids = self._record.builder.ids
        whole = messages if setup.template.history == "template" else []
        return await self._encode(lambda: setup.template.extend(self._history, reply, self._schemas), [*whole, *reply])

    def _closed(self, generation: Generation) -> bool:
        """Whether a stop token ended it; a host may stop on others than the template's."""
        ids = generation.token_ids
        return bool(ids) and ids[-1] in self._setup.template.stop_token_ids

    def _fits(self, length: int) -> bool:
        """Whether so long a segment leaves room for one more token."""
        return self._setup.limit is None or length < self._setup.limit

    async def _encode(self, work: Callable[[], T], messages: Sequence[Message]) -> T:
        if text_length(message["content"] for message in messages) < LONG_TEXT:
            return work()
        return await asyncio.to_thread(work)

    def _called(self, turn: int) -> Callable[[ToolOutcome], None]:
        return lambda outcome: self._notify("tool_called", turn=turn, outcome=outcome)

    def _notify(self, hook: str, **arguments: object) -> None:
        job = self._job
        self._setup.notify(hook, task=job.task, chain_index=job.chain_index, group=job.group, **arguments)
