"""A model's own chat template, the Jinja source that ships with its tokenizer: what ours are compared with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentfly_core.types.errors import MissingDependency, UsageError


class Reference:
    """A Jinja chat template, rendered as Hugging Face renders it. Run in Jinja's sandbox.

    Args:
        source: the template's text.
        variables: further names it may use, such as ``bos_token``.
    """

    def __init__(self, source: str, variables: Mapping[str, Any] | None = None) -> None:
        try:
            import jinja2
            import jinja2.ext
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            raise MissingDependency("jinja2", "comparing with a model's own template", "jinja2") from error
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        self._failures = (jinja2.TemplateError, TypeError, ValueError, KeyError)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise UsageError(f"the model's chat template is no valid Jinja: {error}") from error
        self._variables = dict(variables or {})

    @classmethod
    def load(cls, folder: str | Path) -> Reference:
        """The template of a model folder: ``chat_template.jinja``, else the one in ``tokenizer_config.json``.

        Raises:
            UsageError: the folder has none.
        """
        folder = Path(folder)
        config = _read_config(folder / "tokenizer_config.json")
        names = ("bos_token", "eos_token", "pad_token", "unk_token")
        variables = {n: _token_text(config[n]) for n in names if config.get(n) is not None}
        file = folder / "chat_template.jinja"
        source = file.read_text(encoding="utf-8") if file.is_file() else _chosen(config.get("chat_template"))
        if source is None:
            raise UsageError(
                f"{folder} has no chat template: neither chat_template.jinja nor one in tokenizer_config.json"
            )
        return cls(source, variables)

    def render(
        self, messages: Sequence[Any], tools: Sequence[Any] = (), *, generation_prompt: bool = True, **options: Any
    ) -> str:
        """The conversation as text.

        Raises:
            UsageError: the template refuses the messages.
        """
        variables = {**self._variables, **options, "messages": list(messages), "tools": list(tools) or None}
        try:
            return self._template.render(add_generation_prompt=generation_prompt, **variables)
        except self._failures as error:
            raise UsageError(f"the model's own chat template refuses the messages: {error}") from error


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Hugging Face's filter; Jinja's own escapes HTML and sorts keys."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise ValueError(message)


def _read_config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{file} is not valid JSON: {error}") from error
    return config if isinstance(config, dict) else {}


def _token_text(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _chosen(template: Any) -> str | None:
    """A config holds one template, or several by name of which ``default`` is meant."""
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None
