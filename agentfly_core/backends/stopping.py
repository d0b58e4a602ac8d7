"""Turns that end where a text appears: found in a few of the last ids, whatever the length of the turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from agentfly_core.types import MissingDependency, UsageError

CHARACTER = 4
"""The most ids that one character can be spread over: the bytes of its UTF-8 form."""
NEEDS = "stop texts need the model's tokenizer"


@runtime_checkable
class Decoder(Protocol):
    """What is needed of a ``tokenizers.Tokenizer``."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = ...) -> str: ...


class StopTexts:
    """Says whether ids whose last one is new spell one of some texts. Safe to share between turns and threads.

    Most ids are dismissed by a look-up: their own text holds no character that one of the texts ends with. Only for
    the others the last few ids are decoded, as many as the longest text can be spread over.

    Args:
        tokenizer: of the model that samples.
        texts: none of them empty.
    """

    def __init__(self, tokenizer: Decoder, texts: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._texts = tuple(texts)
        self._most_ids = CHARACTER * (max(map(len, texts)) + 1)
        self._last = {text[-1] for text in texts}
        self._alone: dict[int, str] = {}

    def appear(self, ids: Sequence[int], begin: int = 0) -> bool:
        """Whether the text of ``ids[begin:]`` holds one of the texts, that of ``ids[begin:-1]`` holding none."""
        if not self._may_end_with(ids[-1]):
            return False
        window = self._window(ids, begin)
        for skipped in range(CHARACTER):
            text = self._decode(window[skipped:])
            if any(wanted in text for wanted in self._texts):
                return True
            if "\ufffd" not in text:
                break  # otherwise the window may begin within a character, and what follows be spoilt by that
        return False

    def _may_end_with(self, token: int) -> bool:
        text = self._text(token)
        # A part of a character decodes to U+FFFD; and a tokenizer may drop the space that a lone token begins with.
        return "\ufffd" in text or " " in self._last or not self._last.isdisjoint(text)

    def _window(self, ids: Sequence[int], begin: int) -> Sequence[int]:
        """The last ids, of which enough have a text of their own (ids that the tokenizer lacks have none)."""
        start, counted = len(ids), 0
        while start > begin and counted < self._most_ids:
            start -= 1
            counted += bool(self._text(ids[start]))
        return ids[start:]

    def _text(self, token: int) -> str:
        text = self._alone.get(token)
        if text is None:
            text = self._alone[token] = self._decode([token])
        return text

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


def load_decoder(model: object) -> Decoder:
    """The tokenizer beside a model, for its stop texts.

    Args:
        model: a folder or hub id; anything else has no tokenizer beside it.

    Raises:
        UsageError: there is none.
        MissingDependency: neither ``tokenizers`` nor ``transformers`` is installed.
    """
    if not isinstance(model, str | Path):
        raise UsageError(f"{NEEDS}, but the backend was given a module: give the model's folder instead, or no `stop`")
    folder = Path(model).expanduser()
    return _read(folder / "tokenizer.json") if folder.is_dir() else _from_hub(str(model))


def _read(file: Path) -> Decoder:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingDependency("tokenizers", "`stop`", "agentfly-core[tokenizers]") from error
    if not file.is_file():
        raise UsageError(f"{NEEDS}, but there is no {file}")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception for whatever is wrong with the file
        raise UsageError(f"{NEEDS}, but {file} is no tokenizer file: {error}") from error


def _from_hub(name: str) -> Decoder:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingDependency("transformers", "`stop`", "agentfly-core[local]") from error
    try:
        found: Decoder = AutoTokenizer.from_pretrained(name).backend_tokenizer
    except (OSError, ValueError, AttributeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"{NEEDS}, but the hub gives none for {name!r}: {reason}") from error
    return found
