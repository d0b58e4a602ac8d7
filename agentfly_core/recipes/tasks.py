"""A recipe's data: tasks to train and evaluate on, conversations to learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentfly_core.recipes.data import Rows, call_source, open_source, to_messages, to_task
from agentfly_core.recipes.files import Row
from agentfly_core.recipes.schema import Recipe
from agentfly_core.types import Split, Task, UsageError

_FIRST_ROWS = 8
"""Rows that are looked at when a recipe is loaded."""


class RecipeData:
    """Opens each source once, when it is first asked for.

    Args:
        base: where relative files start from.
        modules: the recipe's own plugin files by module name.
        environment_tasks: the environment's ``tasks``, used where the recipe names no data; or None.
    """

    def __init__(
        self, recipe: Recipe, base: Path, modules: Mapping[str, Path], environment_tasks: Callable[..., Any] | None
    ) -> None:
        self._recipe = recipe
        self._base = base
        self._modules = modules
        self._environment_tasks = environment_tasks
        self._opened: dict[Split, Rows] = {}

    def check(self, wanted: Mapping[str, frozenset[str]]) -> None:
        """Look at the first rows of every source.

        Args:
            wanted: the fields that each reward needs.

        Raises:
            UsageError: no rows, a malformed one, no prompt, or a field that a reward needs and the row lacks.
        """
        splits: tuple[Split, ...] = ("train", "eval")
        for split in splits:
            if getattr(self._recipe.data, split) or self._environment_tasks:
                rows = self._rows(split)
                first = rows.first(_FIRST_ROWS)
                if not first:
                    raise UsageError(f"data.{split}: {rows.name} has no rows")
                for row in first:
                    _check_fields(row, self._task(row), wanted)

    def train(self, start: int) -> Iterator[Task]:
        """Tasks for ever, the first ``start`` left out."""
        recipe = self._recipe
        rows = self._rows("train").endless(
            seed=recipe.seed, shuffle=recipe.data.shuffle, block=recipe.train.tasks_per_step, start=start
        )
        return map(self._task, rows)

    def eval(self, count: int) -> list[Task]:
        """The first ``count`` held-out tasks, in the source's order; fewer if it ends."""
        return list(map(self._task, self._rows("eval").first(count)))

    def conversations(self, start: int) -> Iterator[dict[str, Any]]:
        """Rows of ``sft.data`` for ever, the first ``start`` left out; ``messages`` is a tuple of messages."""
        section = self._recipe.sft
        if section is None:
            raise UsageError("sft: missing; name the conversations: sft: {data: FILE}")
        rows = open_source(
            section.data,
            split="train",
            seed=self._recipe.seed,
            base=self._base,
            modules=self._modules,
            where="sft.data",
        )
        return map(_conversation, rows.endless(seed=self._recipe.seed, shuffle=section.shuffle, start=start))

    def _rows(self, split: Split) -> Rows:
        if split not in self._opened:
            self._opened[split] = self._open(split)
        return self._opened[split]

    def _open(self, split: Split) -> Rows:
        recipe = self._recipe
        source = recipe.data.train if split == "train" else recipe.data.eval
        if source is not None:
            return open_source(
                source, split=split, seed=recipe.seed, base=self._base, modules=self._modules, where=f"data.{split}"
            )
        if self._environment_tasks is not None:
            return call_source("the environment's tasks", self._environment_tasks, {}, split=split, seed=recipe.seed)
        raise UsageError(f"data.{split}: missing; name a file or a module:function")

    def _task(self, row: Row) -> Task:
        return to_task(row, self._recipe.data, needs_prompt=self._recipe.environment is None)


def _check_fields(row: Row, task: Task, wanted: Mapping[str, frozenset[str]]) -> None:
    for reward, fields in wanted.items():
        if lacking := sorted(fields - set(task.fields)):
            raise UsageError(
                f"reward {reward!r} needs the field {', '.join(map(repr, lacking))}, which {row.where} lacks; "
                f"its fields: {', '.join(sorted(task.fields)) or 'none'}"
            )


class Conversation(dict[str, Any]):
    """A row of ``sft.data``. ``where`` names its file and line, or source and number, for messages."""

    where: str


def _conversation(row: Row) -> Conversation:
    values = {"messages": row.values.messages} if isinstance(row.values, Task) else row.values
    messages = to_messages(values.get("messages"), row.where)
    if not any(m["role"] == "assistant" for m in messages):
        raise UsageError(f"{row.where}: no messages of an assistant to learn from; its columns: {', '.join(values)}")
    conversation = Conversation(values, messages=messages)
    conversation.where = row.where
    return conversation
