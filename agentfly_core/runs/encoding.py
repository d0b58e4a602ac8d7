"""Trajectories as flat rows of a table, and back."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agentfly_core.types import (
    AssistantTurn,
    CallError,
    CallErrorKind,
    ChainStatus,
    Segment,
    Task,
    ToolCall,
    ToolOutcome,
    ToolStatus,
    Trajectory,
    Turn,
    TurnSpan,
)

_MARK = "$agentfly"


def to_row(step: int, trajectory: Trajectory) -> dict[str, Any]:
    """One row of plain values; columns that end in ``_json`` hold JSON text, token lists are one list a segment."""
    t = trajectory
    texts = {
        "group": t.group,
        "task_id": t.task.id,
        "unscored_reason": t.unscored_reason,
        "final_response": t.final_response,
        "error": t.error,
    }
    # Parquet text is UTF-8, which has no lone surrogates; what a model or tool makes of them is kept aside.
    exact = {name: text for name, text in texts.items() if text is not None and _utf8(text) != text}
    return {
        "step": step,
        "split": t.split,
        "chain_index": t.chain_index,
        "status": t.status.value,
        "reward": float(t.reward),
        "scored": t.scored,
        "seconds": float(t.seconds),
        **{name: None if text is None else _utf8(text) for name, text in texts.items()},
        "turn_rewards": [float(r) for r in t.turn_rewards],
        "prompt_len": [s.prompt_len for s in t.segments],
        "token_ids": [list(s.token_ids) for s in t.segments],
        "action_mask": [list(s.action_mask) for s in t.segments],
        "logprobs": [[float(p) for p in s.logprobs] for s in t.segments],
        "spans_json": dump([[[s.turn, s.start, s.end] for s in segment.spans] for segment in t.segments]),
        "images_json": dump([list(s.images) for s in t.segments]),
        "task_json": dump({"messages": t.task.messages, "fields": t.task.fields}),
        "messages_json": dump(t.messages),
        "turns_json": dump([_turn(turn) for turn in t.turns]),
        "components_json": dump(t.components),
        "metrics_json": dump(t.metrics),
        "exact_json": dump(exact),
    }


def from_row(row: Mapping[str, Any]) -> Trajectory:
    """The trajectory that ``to_row`` was given."""
    row = {**row, **load(row["exact_json"])}
    task = load(row["task_json"])
    segments = zip(
        row["token_ids"],
        row["action_mask"],
        row["logprobs"],
        row["prompt_len"],
        load(row["spans_json"]),
        load(row["images_json"]),
        strict=True,
    )
    return Trajectory(
        task=Task(row["task_id"], tuple(task["messages"]), task["fields"]),
        chain_index=row["chain_index"],
        group=row["group"],
        split=row["split"],
        status=ChainStatus(row["status"]),
        segments=tuple(
            Segment(tuple(ids), tuple(mask), tuple(logp), length, tuple(TurnSpan(*s) for s in spans), tuple(images))
            for ids, mask, logp, length, spans, images in segments
        ),
        turns=tuple(_to_turn(turn) for turn in load(row["turns_json"])),
        messages=tuple(load(row["messages_json"])),
        final_response=row["final_response"],
        reward=row["reward"],
        scored=row["scored"],
        unscored_reason=row["unscored_reason"],
        components=load(row["components_json"]),
        turn_rewards=tuple(row["turn_rewards"]),
        metrics=load(row["metrics_json"]),
        error=row["error"],
        seconds=row["seconds"],
    )


def dump(value: Any) -> str:
    """JSON text of any value. Bytes and images survive; what JSON cannot carry becomes its ``repr``."""
    return json.dumps(_plain(value), ensure_ascii=True, separators=(",", ":"))


def load(text: str) -> Any:
    """What ``dump`` was given, with lists for tuples."""
    return json.loads(text, object_hook=_restore)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        plain = {str(k): _plain(v) for k, v in value.items()}
        return {_MARK: "dict", "value": list(plain.items())} if _MARK in plain else plain
    if isinstance(value, bytes):
        return {_MARK: "bytes", "value": base64.b64encode(value).decode()}
    if isinstance(value, Sequence):
        return [_plain(v) for v in value]
    if hasattr(value, "tobytes") and hasattr(value, "save"):  # a PIL image
        png = io.BytesIO()
        value.save(png, format="PNG")
        return {_MARK: "png", "value": base64.b64encode(png.getvalue()).decode()}
    return repr(value)


def _restore(value: dict[str, Any]) -> Any:
    kind = value.get(_MARK)
    if kind == "dict":
        return dict(value["value"])
    if kind in ("bytes", "png"):  # an image stays encoded: whoever shows it decodes it
        return base64.b64decode(value["value"])
    return value


def _turn(turn: Turn) -> dict[str, Any]:
    plain = asdict(turn)
    plain["assistant"]["calls"] = [
        {"error": call.kind.value, "message": call.message, "name": call.name, "id": call.id}
        if isinstance(call, CallError)
        else {"name": call.name, "arguments": call.arguments, "id": call.id}
        for call in turn.assistant.calls
    ]
    for outcome, plain_outcome in zip(turn.outcomes, plain["outcomes"], strict=True):
        plain_outcome["status"] = outcome.status.value
    return plain


def _to_turn(plain: dict[str, Any]) -> Turn:
    assistant = plain["assistant"]
    return Turn(
        **{
            **plain,
            "token_ids": tuple(plain["token_ids"]),
            "assistant": AssistantTurn(**{**assistant, "calls": tuple(map(_to_call, assistant["calls"]))}),
            "outcomes": tuple(ToolOutcome(**{**o, "status": ToolStatus(o["status"])}) for o in plain["outcomes"]),
            "observation": tuple(plain["observation"]),
        }
    )


def _to_call(call: dict[str, Any]) -> ToolCall | CallError:
    if "error" in call:
        return CallError(CallErrorKind(call["error"]), call["message"], call["name"], call["id"])
    return ToolCall(call["name"], call["arguments"], call["id"])


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
