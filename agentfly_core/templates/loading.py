"""Loading the tokenizer under every fast Hugging Face tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.types.errors import MissingDependency, UsageError

if TYPE_CHECKING:
    import tokenizers

EXTRA = "agentfly-core[tokenizers]"


def load_tokenizer(path: str | Path) -> tokenizers.Tokenizer:
    """The tokenizer of a model folder, of a ``tokenizer.json`` file, or of a model on the hub.

    A hub name (``organisation/model``) is looked up through transformers, if that is installed.

    Raises:
        UsageError: there is no tokenizer, or its file cannot be read.
        MissingDependency: ``tokenizers`` is not installed.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        file = place / "tokenizer.json"
        if not file.is_file():
            raise UsageError(
                f"{place} has no tokenizer.json; save one there with "
                f"transformers.AutoTokenizer.from_pretrained(...).save_pretrained({str(place)!r})"
            )
        return _read(file)
    if place.is_file():
        return _read(place)
    if isinstance(path, str) and _is_hub_name(path):
        return _from_hub(path)
    raise UsageError(f"no tokenizer at {path}: neither a folder with tokenizer.json, nor such a file, nor a hub name")


def _read(file: Path) -> tokenizers.Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingDependency("tokenizers", "a chat template", EXTRA) from error
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception for whatever is wrong with the file
        raise UsageError(f"{file} is no tokenizer file: {error}") from error


def _is_hub_name(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 2 and all(p and not p.startswith((".", "~")) and "\\" not in p for p in parts)


def _from_hub(name: str) -> tokenizers.Tokenizer:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingDependency("transformers", f"the hub tokenizer {name!r}", "agentfly-core[local]") from error
    try:
        loaded = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"{name!r} is no local path, and the hub gives no tokenizer for it: {reason}") from error
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise UsageError(f"the tokenizer of {name!r} has no fast form (tokenizer.json), which templates need")
    result: tokenizers.Tokenizer = backend
    return result
