"""Supervised training on conversations, with the template and the masks of rollouts."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from agentfly_core.backends.loading import load_model
from agentfly_core.learners.checkpointing import write_model
from agentfly_core.learners.optim import ScheduledOptimizer
from agentfly_core.learners.packing import Block, Pack, micro_batches
from agentfly_core.learners.policy import Policy
from agentfly_core.learners.reporting import Report
from agentfly_core.rollout.agents import continuation, continues
from agentfly_core.rollout.environments import merge_tools, static_tools
from agentfly_core.rollout.segments import SegmentBuilder
from agentfly_core.rollout.setup import list_schemas
from agentfly_core.runs.files import replace_folder
from agentfly_core.types import (
    Agent,
    ChatTemplate,
    Generation,
    History,
    Message,
    NewSegment,
    Segment,
    Task,
    ToolSchema,
    UsageError,
)

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe
    from agentfly_core.runs import RunFolder


def run_sft(recipe: LoadedRecipe, folder: RunFolder, *, stop: threading.Event | None = None) -> Path:
    """Train the recipe's model on its conversations (``sft``) and write it; returns the model's folder.

    The model is written also if ``stop`` is set before the last step.

    Raises:
        UsageError: the recipe has no ``sft`` section, or a conversation cannot be rendered.
    """
    config = recipe.recipe
    section = config.sft
    if section is None:
        raise UsageError("sft: missing; name the conversations: sft: {data: FILE}")
    torch.manual_seed(config.seed)
    model = load_model(recipe.model_path, dtype="float32", device=config.model.device, attention=config.model.attention)
    policy = Policy(model, dtype=getattr(torch, config.model.dtype))
    optimizer = ScheduledOptimizer(model, section.optimizer, section.steps)
    encoder = ConversationEncoder(recipe)
    rows = recipe.sft_rows()
    done = 0
    with Report(recipe, folder) as report:
        while done < section.steps and not (stop and stop.is_set()):
            started = time.perf_counter()
            batch = list(islice(rows, section.batch_size))
            if not batch:
                raise UsageError("sft.data: has no rows")
            segments = [segment for row in batch for segment in _encoded(encoder, row)]
            metrics = sft_step(
                policy,
                optimizer,
                segments,
                position=done,
                context_weight=section.context_weight,
                budget=section.micro_batch_tokens,
            )
            done += 1
            report.step(done, metrics | {"update/seconds": time.perf_counter() - started})
        replace_folder(folder.model_path, lambda path: write_model(model, path, tokenizer_from=recipe.model_path))
        report.finish(done, stopped=done < section.steps)
    return folder.model_path


def _encoded(encoder: ConversationEncoder, row: Mapping[str, Any]) -> tuple[Segment, ...]:
    try:
        return encoder.encode(row)
    except UsageError as error:
        raise UsageError(f"{getattr(row, 'where', 'sft.data')}: {error}") from error


def sft_step(
    policy: Policy,
    optimizer: ScheduledOptimizer,
    segments: Sequence[Segment],
    *,
    position: int,
    context_weight: float,
    budget: int,
) -> dict[str, float]:
    """One optimizer step on the weighted mean of -log pi over tokens; returns numbers for the log.

    A token that the model would sample has weight 1, every other one but the first ``context_weight``. A step whose
    loss or gradient is not finite is skipped.
    """
    lengths = torch.tensor([len(s.token_ids) for s in segments])
    token_ids = torch.zeros(len(segments), int(lengths.max()), dtype=torch.int64)
    weights = torch.zeros(len(segments), int(lengths.max()) - 1)
    for row, segment in enumerate(segments):
        token_ids[row, : len(segment.token_ids)] = torch.tensor(segment.token_ids)
        sampled = torch.tensor(segment.action_mask[1:], dtype=torch.float32)
        weights[row, : len(sampled)] = sampled + context_weight * (1 - sampled)
    total = float(weights.sum())
    if total == 0:
        return {"optim/steps": 0.0, "optim/skipped": 0.0}
    optimizer.zero_grad()
    loss = 0.0
    blocks = [Block([Pack((row,))], len(segment.token_ids)) for row, segment in enumerate(segments)]
    for part in micro_batches(blocks, budget):
        rows, width = part.rows, int(lengths[part.rows].max())
        loss += _backward(policy, token_ids[rows, :width], weights[rows, : width - 1], total)
    norm = optimizer.clip_gradients()
    metrics = {"loss/sft": loss, "optim/grad_norm": norm, "sft/tokens": float(lengths.sum())}
    finite = math.isfinite(loss) and math.isfinite(norm)
    if finite:
        metrics["optim/lr"] = optimizer.step(position)
    optimizer.zero_grad()
    return metrics | {"optim/steps": float(finite), "optim/skipped": float(not finite)}


def _backward(policy: Policy, token_ids: Tensor, weights: Tensor, total: float) -> float:
    logp, _ = policy.logprobs(token_ids, weights > 0)
    loss = -(logp * weights.to(policy.device)).sum() / total
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach())


class ConversationEncoder:
    """Conversations as the segments that a rollout would have made of them, had the model sampled every reply."""

    def __init__(self, recipe: LoadedRecipe) -> None:
        self._template: ChatTemplate = recipe.template()
        self._agent: Agent = recipe.agent()
        self._registry = recipe.plugins.registry("tools")
        environment = recipe.environment_spec()
        own = static_tools(environment.target) if environment else None
        self._tools = list(merge_tools({tool.name: tool for tool in recipe.tools}, own or ()).values())

    def encode(self, row: Mapping[str, Any]) -> tuple[Segment, ...]:
        """Segments of a row's ``messages``, with its own ``tools`` (names) or else the recipe's.

        Raises:
            UsageError: it does not begin with something to reply to, or a message cannot be rendered.
        """
        names = row.get("tools")
        tools = self._tools if names is None else [self._registry.get(name) for name in names]
        messages = list(row["messages"])
        first = next((i for i, m in enumerate(messages) if m["role"] == "assistant"), 0)
        if first == 0:
            raise UsageError("a conversation must have a message before the assistant's first")
        by_name = {tool.name: tool for tool in tools}
        opening = self._agent.start(Task("sft", tuple(messages[:first])), None, by_name)
        schemas = list_schemas(self._agent, tools)
        return encode_conversation(
            self._template, opening, messages[first:], schemas, continuing=continues(self._agent)
        )


def encode_conversation(
    template: ChatTemplate,
    opening: Sequence[Message],
    rest: Sequence[Message],
    tools: Sequence[ToolSchema],
    *,
    continuing: bool = False,
) -> tuple[Segment, ...]:
    """Segments of a conversation whose first reply is ``rest[0]``. Their logprobs are 0.

    Args:
        continuing: observations go on within the reply before them, which then has no end token.
    """
    history = History(messages=list(opening))
    builder = SegmentBuilder()
    builder.open(template.encode_prompt(opening, tools))
    for turn, (reply, observation) in enumerate(_turns(rest)):
        ids = tuple(template.encode_reply(reply))
        if continuing and observation:
            builder.sampled(turn, Generation(ids[:-1], (0.0,) * (len(ids) - 1), "stop"))
            builder.observed(template.encode_continuation(continuation(observation)))
            continue
        generation = Generation(ids, (0.0,) * len(ids), "stop")
        builder.sampled(turn, generation)
        if not observation:
            break
        raw = template.decode(ids[:-1])
        history.messages.append({"role": "assistant", "content": raw})
        history.last, history.last_raw, history.segment_ids = generation, raw, builder.ids
        extended = template.extend(history, observation, tools)
        history.messages += observation
        if isinstance(extended, NewSegment):
            builder.open(extended.prompt_ids)
        else:
            builder.observed(extended.ids)
    return builder.finish()


def _turns(messages: Sequence[Message]) -> list[tuple[Message, list[Message]]]:
    """Each reply with the messages that answer it; two replies in a row make no conversation."""
    turns: list[tuple[Message, list[Message]]] = []
    for message in messages:
        if message["role"] != "assistant":
            turns[-1][1].append(message)
        elif turns and not turns[-1][1]:
            raise UsageError("two assistant messages in a row; a chain has an observation between its turns")
        else:
            turns.append((message, []))
    return turns
