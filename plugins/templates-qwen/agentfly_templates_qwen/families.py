"""The template families: formats to be bound to a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from agentfly_core.templates import TextTemplate
from agentfly_core.types import HistoryMode, UnknownName, UsageError
from agentfly_templates_qwen.formats import Qwen3Format, Qwen25Format, QwenFormat

if TYPE_CHECKING:
    import tokenizers


@dataclass(frozen=True)
class QwenFamily:
    """A format with its options not yet chosen; every option is a switch."""

    format: type[QwenFormat]

    @property
    def name(self) -> str:
        return self.format.name

    @property
    def options(self) -> dict[str, Any]:
        """The options with their defaults."""
        return {f.name: f.default for f in fields(self.format)}

    def bind(self, tokenizer: tokenizers.Tokenizer, *, history: HistoryMode = "append", **options: Any) -> TextTemplate:
        for key, value in options.items():
            if key not in self.options:
                raise UnknownName(f"option of template {self.name!r}:", key, self.options)
            if not isinstance(value, bool):
                raise UsageError(f"template {self.name!r}: option {key} must be true or false, got {value!r}")
        return TextTemplate(self.format(**options), tokenizer, history)


QWEN25 = QwenFamily(Qwen25Format)
QWEN3 = QwenFamily(Qwen3Format)
QWEN3_INSTRUCT_2507 = QwenFamily(QwenFormat)
