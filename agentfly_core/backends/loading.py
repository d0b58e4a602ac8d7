"""Loading a causal language model, with one clear error for each way in which it can fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfly_core.types import MissingDependency, UnknownName, UsageError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

DTYPES = ("float32", "bfloat16", "float16")
WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "pytorch_model.bin.index.json")


def load_model(
    path: str | Path, *, dtype: str = "float32", device: str = "auto", attention: str = "sdpa"
) -> PreTrainedModel:
    """A transformers causal LM in eval mode.

    Args:
        path: a folder with ``config.json`` and weights, or the id of a model on the Hugging Face hub (found in the
            local cache without a network).
        dtype: of weights and activations: ``float32``, ``bfloat16``, ``float16``.
        device: a torch device, or ``auto``: the first GPU if there is one, else the CPU.
        attention: transformers' attention implementation.

    Raises:
        MissingDependency: torch or transformers is not installed.
        UsageError: the model is not there, is incomplete, cannot be downloaded or is no causal LM; a bad option.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        package = error.name or "torch"
        raise MissingDependency(package, "loading a model", "agentfly-core[local]") from error

    if dtype not in DTYPES:
        raise UnknownName("dtype", dtype, DTYPES)
    target = resolve_device(device)
    source = _checked_source(path)
    try:
        with without_progress_bar():
            loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
                source, dtype=getattr(torch, dtype), attn_implementation=attention, output_loading_info=True
            )
    except Exception as error:  # whatever a reader of damaged files may raise
        raise UsageError(_explain(path, error)) from error
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        raise UsageError(f"the weights of the model {path} lack {len(missing)} tensors, among them {missing[0]}")
    model.to(target).eval()
    return model  # type: ignore[no-any-return]


@contextmanager
def without_progress_bar() -> Iterator[None]:
    """Transformers' bar for reading or writing one file would tear the table of a run apart."""
    from transformers.utils import logging

    bars: Any = logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def resolve_device(device: str) -> torch.device:
    """``auto`` or a torch device name to a device.

    Raises:
        UsageError: torch does not know it, or this machine does not have it.
    """
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"unknown device {device!r}; use auto, cpu, cuda or cuda:0, cuda:1 ...") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {device!r} was asked for, but torch sees no CUDA GPU; use device auto or cpu")
    return found


def _checked_source(path: str | Path) -> str:
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"the model folder {folder} has no config.json; is it the folder of a Hugging Face model?")
        if not any(next(folder.glob(pattern), None) for pattern in WEIGHT_FILES):
            raise UsageError(f"the model folder {folder} has a config.json but no weights (model.safetensors)")
        return str(folder)
    text = str(path)
    if isinstance(path, Path) or text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise UsageError(f"there is no model folder {path}")
    return text


def _explain(path: str | Path, error: Exception) -> str:
    reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    if isinstance(error, ValueError) and "Unrecognized configuration class" in str(error):
        return f"the model {path} is not a causal language model that transformers knows ({reason})"
    if Path(path).expanduser().is_dir():
        return f"the model in {path} cannot be loaded: {reason}"
    return (
        f"there is no model folder {path}, and the hub has no such model, asks for a login, or cannot be reached "
        f"({reason}); give a folder, or download the model first and set HF_HOME to where it is"
    )
