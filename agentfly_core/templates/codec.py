"""Rendered conversations to token ids, with the text of contents kept from turning into control tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from agentfly_core.types.errors import MissingDependency, UsageError

if TYPE_CHECKING:
    import tokenizers

_SURROGATE = re.compile("[\ud800-\udfff]")

LONG_TEXT = 20_000
"""Characters from which on a text is encoded without holding the interpreter's lock (some 10 ms)."""


class Rendered:
    """A rendered conversation in pieces: the template's own text, and contents, which are only text."""

    __slots__ = ("contents", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.contents: list[int] = []
        """Positions of the contents in ``pieces``."""

    def own(self, text: str) -> None:
        """Add text of the template: control-token text in it becomes control tokens."""
        self.pieces.append(text)

    def content(self, text: str) -> None:
        """Add text of a message: control-token text in it stays ordinary text."""
        self.contents.append(len(self.pieces))
        self.pieces.append(text)

    def mixed(self, text: str, tags: re.Pattern[str]) -> None:
        """Add content in which the matches of ``tags`` (one group around all of it) are the template's own."""
        for i, part in enumerate(tags.split(text)):
            if part:
                self.own(part) if i % 2 else self.content(part)

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)


class TextCodec:
    """A tokenizer as templates use it. Safe to share between threads; the tokenizer given is left as it is.

    Args:
        tokenizer: any tokenizer of the ``tokenizers`` library.
        control: texts of the control tokens that the format cannot do without.

    Raises:
        UsageError: the tokenizer lacks one of them, or its model spells one from ordinary text.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, control: Sequence[str] = ()) -> None:
        self._tokenizer = _neutral(tokenizer)
        # Added tokens only: a text that merely stands in the model's vocabulary is not kept whole when encoded.
        added = tokenizer.get_added_tokens_decoder()
        self._ids = {token.content: id for id, token in added.items()}
        if missing := [text for text in control if text not in self._ids]:
            raise UsageError(
                f"the tokenizer has no control token {', '.join(missing)} "
                f"(it has {', '.join(sorted(self._ids)[:12]) or 'none'})"
            )
        self._control = _alternatives(self._ids)
        self._hit: Callable[[str], object] = self._control.search
        normalizer = self._tokenizer.normalizer
        if normalizer is not None and any(token.normalized for token in added.values()):
            # Tokens flagged so are looked for in normalised text, where other characters may have become theirs.
            self._hit = lambda text: self._control.search(text) or self._control.search(normalizer.normalize_str(text))
        self._plain = _without_added_tokens(self._tokenizer)
        for text, id in self._ids.items():
            if id in self._plain.encode(text, add_special_tokens=False).ids:
                raise UsageError(
                    f"the tokenizer's model makes {text!r} of ordinary text, so contents cannot be kept safe"
                )

    def id(self, text: str) -> int:
        """Id of a control token, by its text.

        Raises:
            UsageError: there is none.
        """
        try:
            return self._ids[text]
        except KeyError:
            raise UsageError(f"the tokenizer has no control token {text!r}") from None

    def encode(self, rendered: Rendered | str) -> list[int]:
        """Ids of the whole text in one tokenizer call, without added special tokens.

        Only if a content holds the text of a control token, the text is cut at the template's own control tokens
        and every stretch between them is one call of the same model without any. A lone surrogate, which has no
        UTF-8 form, becomes U+FFFD.
        """
        if isinstance(rendered, str):
            return self._encode(self._tokenizer, rendered)
        pieces, hit = rendered.pieces, self._hit
        for i in rendered.contents:
            if hit(pieces[i]):
                return self._encode_safely(rendered)
        return self._encode(self._tokenizer, "".join(pieces))

    def encode_content(self, text: str) -> list[int]:
        """Ids of a content by itself, in one call; control-token text in it stays ordinary text."""
        rendered = Rendered()
        rendered.content(text)
        return self.encode(rendered)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, control tokens spelled out. Bytes that are no UTF-8 become U+FFFD."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def _encode_safely(self, rendered: Rendered) -> list[int]:
        contents = set(rendered.contents)
        ids: list[int] = []
        stretch: list[str] = []
        for i, piece in enumerate(rendered.pieces):
            if i in contents:
                stretch.append(piece)
                continue
            for k, part in enumerate(self._control.split(piece)):
                if k % 2 == 0:
                    stretch.append(part)
                    continue
                ids += self._encode(self._plain, "".join(stretch))
                ids.append(self._ids[part])
                stretch.clear()
        return ids + self._encode(self._plain, "".join(stretch))

    @staticmethod
    def _encode(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
        try:
            return _ids(tokenizer, text)
        except TypeError:  # the library's answer to a text that has no UTF-8 form
            return _ids(tokenizer, _SURROGATE.sub("\ufffd", text))


def _ids(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
    """Ids of a text. Only the batch call lets other threads run meanwhile: ``encode`` stops them all, for seconds with
    a text of megabytes."""
    if len(text) < LONG_TEXT:
        return tokenizer.encode(text, add_special_tokens=False).ids
    return tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids


def _alternatives(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern of any of the texts, longest first, in one group; a shared beginning makes the scan fast."""
    ordered = sorted(texts, key=lambda t: (-len(t), t))
    if not ordered:
        return re.compile("((?!))")
    shared = _shared_beginning(min(ordered), max(ordered))
    rest = "|".join(re.escape(text[len(shared) :]) for text in ordered)
    return re.compile(f"({re.escape(shared)}(?:{rest}))")


def _shared_beginning(a: str, b: str) -> str:
    length = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:length]


def _neutral(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer, or a copy of it without truncation and padding, which would silently change ids."""
    if tokenizer.truncation is None and tokenizer.padding is None and not tokenizer.encode_special_tokens:
        return tokenizer
    copy = _tokenizer_class().from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _without_added_tokens(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same model, normaliser and pre-tokenizer (shared, not copied) without any added token."""
    plain = _tokenizer_class()(tokenizer.model)
    if tokenizer.normalizer is not None:
        plain.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        plain.pre_tokenizer = tokenizer.pre_tokenizer
    return plain


def _tokenizer_class() -> type[tokenizers.Tokenizer]:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingDependency("tokenizers", "a chat template", "agentfly-core[tokenizers]") from error
    return Tokenizer
