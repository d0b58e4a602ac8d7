"""Data sources to rows, rows to tasks, and the order in which a run sees them."""

from __future__ import annotations

import functools
import inspect
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfly_core.recipes.calling import build
from agentfly_core.recipes.files import SUFFIXES, Row, file_rows
from agentfly_core.recipes.locate import find_file
from agentfly_core.recipes.schema import DataSection, DataSource
from agentfly_core.registry import import_home
from agentfly_core.types import Message, Split, Task, UnknownName, UsageError, derive_seed, is_content

_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class Rows:
    """The rows of one source.

    Attributes:
        name: the source, for messages.
        listed: all rows, where the source is finite; they may be shuffled.
        stream: makes a fresh iterator, where the source is a generator and thus maybe endless.
    """

    name: str
    listed: list[Row] | None = None
    stream: Callable[[], Iterator[Row]] | None = None

    def first(self, count: int) -> list[Row]:
        """The first rows, in the source's own order."""
        return list(itertools.islice(self._fresh(), count))

    def endless(self, *, seed: int, shuffle: bool, block: int = 1, start: int = 0) -> Iterator[Row]:
        """Rows for ever, the first ``start`` left out.

        A list is gone through in epochs, each in an order of its own that only (seed, epoch) decides. An epoch ends
        with its last full ``block`` of rows, so that no row comes twice within a block. A generator keeps its order
        and begins anew when it ends.

        Raises:
            UsageError: there are fewer rows than one block, or none.
        """
        if self.listed is None:
            return itertools.islice(self._repeated(), start, None)
        if len(self.listed) < block:
            raise UsageError(f"{self.name} has {len(self.listed)} rows, but one step takes {block}")
        return self._epochs(self.listed, seed, shuffle, len(self.listed) // block * block, start)

    def _epochs(self, rows: list[Row], seed: int, shuffle: bool, length: int, start: int) -> Iterator[Row]:
        skip = start % length
        for epoch in itertools.count(start // length):
            order = list(range(len(rows)))
            if shuffle:
                random.Random(derive_seed(seed, "epoch", epoch)).shuffle(order)
            for index in order[skip:length]:
                yield rows[index]
            skip = 0

    def _repeated(self) -> Iterator[Row]:
        count = 0
        while True:
            before = count
            for row in self._fresh():
                yield Row(row.values, count, row.where)
                count += 1
            if count == before:
                raise UsageError(f"{self.name} has no rows")

    def _fresh(self) -> Iterator[Row]:
        return iter(self.listed or ()) if self.stream is None else self.stream()


def open_source(
    source: DataSource, *, split: Split, seed: int, base: Path, modules: Mapping[str, Path], where: str
) -> Rows:
    """The rows of a file (see ``find_file``) or of a ``module:function``.

    Args:
        modules: names of the recipe's own plugin files; they win over installed modules.
        where: the recipe's field, for messages.

    Raises:
        UsageError: it does not exist, cannot be read, or refuses its options.
    """
    if source.source.endswith(SUFFIXES):
        path = find_file(source.source, base)
        if not path.exists() and base.resolve() != Path.cwd():
            raise UsageError(f"data file {path} does not exist, nor is it in {Path.cwd()} ({where})")
        if source.options:
            raise UsageError(f"{where}.options: a data file takes none; they are for module:function sources")
        return Rows(str(path), listed=list(itertools.islice(file_rows(path), source.limit)))
    return call_source(
        source.source,
        _import(source.source, base, modules, where),
        source.options,
        split=split,
        seed=seed,
        limit=source.limit,
    )


def call_source(
    name: str,
    function: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    split: Split,
    seed: int,
    limit: int | None = None,
) -> Rows:
    """The rows that a function yields; it gets ``split`` and ``seed`` if it takes them, and the options."""

    def rows() -> Iterator[Row]:
        for number, values in enumerate(going_on(call())):
            if not isinstance(values, Task | Mapping):
                raise UsageError(f"{name}, row {number + 1}: a row is a mapping or a Task, got {values!r:.60}")
            plain = values if isinstance(values, Task) else dict(values)
            yield Row(plain, number, f"{name}, row {number + 1}")

    def going_on(made: Iterable[Any]) -> Iterator[Any]:
        try:
            yield from made
        except SystemExit as error:
            raise UsageError(f"data source {name!r} ends the process (sys.exit)") from error

    def call() -> Iterable[Any]:
        made = build(f"data source {name!r}", function, options, split=split, seed=seed)
        if not isinstance(made, Iterable):
            raise UsageError(f"data source {name!r} must return rows, got {made!r:.60}")
        return made

    if limit is None and isinstance(call(), Iterator):
        return Rows(name, stream=rows)
    return Rows(name, listed=list(itertools.islice(rows(), limit)))


def to_task(row: Row, data: DataSection, *, needs_prompt: bool) -> Task:
    """The row as a task.

    Args:
        needs_prompt: False where an environment gives the first observation.

    Raises:
        UsageError: the prompt column is missing or neither text nor messages.
    """
    if isinstance(row.values, Task):
        return row.values
    fields = dict(row.values)
    identifier = fields.pop(data.id, None)
    prompt = fields.pop(data.prompt, None)
    if data.prompt in row.values and needs_prompt and not prompt:
        raise UsageError(f"{row.where}: column {data.prompt!r} (data.prompt) is empty")
    if prompt is None and needs_prompt:
        columns = ", ".join(map(str, row.values)) or "none"
        raise UsageError(f"{row.where}: no column {data.prompt!r} (data.prompt); its columns: {columns}")
    return Task(str(row.number if identifier is None else identifier), to_messages(prompt, row.where), fields)


def to_messages(prompt: Any, where: str) -> tuple[Message, ...]:
    """The opening messages: text is a user's message.

    Raises:
        UsageError: it is neither text nor a list of messages with role and content.
    """
    if prompt is None:
        return ()
    if isinstance(prompt, str):
        return ({"role": "user", "content": prompt},)
    if not isinstance(prompt, list | tuple):
        raise UsageError(f"{where}: a prompt is text or a list of messages, got {prompt!r:.60}")
    return tuple(_message(message, where) for message in prompt)


def conversation_tasks(messages: Any) -> list[Task]:
    """Conversations given in a script as tasks, numbered by their place.

    Args:
        messages: a list of messages, a list of such lists, or mappings with ``messages`` and fields.

    Raises:
        UsageError: they have another form.
    """
    if isinstance(messages, Mapping):
        messages = [messages]
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise UsageError(f"messages: expected a list of messages or of conversations, got {messages!r:.80}")
    if all(isinstance(m, Mapping) and "role" in m for m in messages):
        messages = [messages]
    return [_conversation_task(number, conversation) for number, conversation in enumerate(messages)]


def _conversation_task(number: int, conversation: Any) -> Task:
    where = f"messages[{number}]"
    fields = dict(conversation) if isinstance(conversation, Mapping) else {"messages": conversation}
    opening = to_messages(fields.pop("messages", None), where)
    if not opening:
        raise UsageError(f"{where}: no messages")
    return Task(str(number), opening, fields)


def _message(message: Any, where: str) -> Message:
    """Null entries, as tables of messages have them, count as absent; an assistant that only calls has no content."""
    if isinstance(message, Mapping) and message.get("role") in _ROLES:
        plain = {k: v for k, v in message.items() if v is not None}
        if message["role"] == "assistant":
            plain.setdefault("content", "")
        if is_content(plain.get("content")) and _are_calls(plain.get("tool_calls", [])):
            return plain  # type: ignore[return-value]
    form = f"a role ({', '.join(_ROLES)}) and a content (text, or text and image parts); tool calls are a list"
    raise UsageError(f"{where}: a message has {form}, got {message!r:.80}")


def _are_calls(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(call, Mapping) for call in value)


def _import(target: str, base: Path, modules: Mapping[str, Path], where: str) -> Callable[..., Any]:
    module, _, attribute = target.rpartition(":")
    if not module or not attribute:
        raise UsageError(f"{where}: {target!r} is neither a file ({', '.join(SUFFIXES)}) nor module:function")
    if module in modules:
        module = str(modules[module])
    elif module.endswith(".py"):
        module = str(find_file(module, base))
    try:
        home = import_home(module)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{where}: {target!r} cannot be imported: {error}") from error
    try:
        function = functools.reduce(getattr, attribute.split("."), home)
    except AttributeError:
        own = [n for n, f in vars(home).items() if inspect.isfunction(f) and f.__module__ == home.__name__]
        place = getattr(home, "__file__", None) or module
        raise UsageError(f"{where}: {UnknownName(f'function of {place}', attribute, own)}") from None
    if not callable(function):
        raise UsageError(f"{where}: {target!r} is no function but {function!r:.60}")
    found: Callable[..., Any] = function
    return found
