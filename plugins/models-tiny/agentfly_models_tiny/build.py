"""Making the model: tokenizer, random weights, warm start by supervised learning."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentfly_core.types import MissingDependency, UsageError
from agentfly_models_tiny.tokenizer import CONTROL, END_OF_TURN, PADDING, build_tokenizer, save_tokenizer

WARM_START = Path(__file__).parent / "recipes" / "warm-start.yaml"
SEED = 6
"""Of the model in the package."""

SHAPE: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}


def build_model(output: Path, *, seed: int = SEED, say: Callable[[str], None] = lambda text: None) -> None:
    """Make the model from nothing and write it to ``output``, a new or empty folder. Takes some two minutes.

    Args:
        seed: of weights and demonstrations.
        say: told what happens.

    Raises:
        UsageError: ``output`` is not empty.
        MissingDependency: torch or transformers is not installed.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"{output} exists and is not empty; name a new folder")
    with tempfile.TemporaryDirectory(prefix="agentfly-tiny-") as scratch:
        start = Path(scratch) / "start"
        start.mkdir()
        say("building the tokenizer and random weights")
        random_model(start, seed=seed)
        say("learning from demonstrations")
        trained = warm_start(start, Path(scratch) / "runs", seed=seed)
        output.mkdir(parents=True, exist_ok=True)
        _pack(trained, output)
    say(f"model: {output}")


def random_model(folder: Path, *, seed: int) -> None:
    """Tokenizer, chat template and untrained weights in an ordinary Hugging Face folder."""
    try:
        import torch
        from transformers import Qwen2Config, Qwen2ForCausalLM
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "building the tiny model", "agentfly-core[local]") from error
    tokenizer = build_tokenizer()
    ids = {text: tokenizer.token_to_id(text) for text in CONTROL}
    config = Qwen2Config(
        vocab_size=tokenizer.get_vocab_size(),
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=None,
        eos_token_id=ids[END_OF_TURN],
        pad_token_id=ids[PADDING],
        **SHAPE,
    )
    torch.manual_seed(seed)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    save_tokenizer(tokenizer, folder)


def warm_start(model: Path, root: Path, *, seed: int) -> Path:
    """Run the recipe ``warm-start.yaml`` on a model folder; the folder of the trained model."""
    from agentfly_core.learners.sft import run_sft
    from agentfly_core.recipes.load import load_recipe
    from agentfly_core.runs import RunFolder

    recipe = load_recipe(WARM_START, [f"model.path={json.dumps(str(model))}", f"seed={seed}"])
    folder = RunFolder.create(root, "warm-start", recipe.resolved(), plugins=recipe.plugins)
    return run_sft(recipe, folder)


def _pack(trained: Path, output: Path) -> None:
    """Copy the model, its weights in half precision: a megabyte. They are loaded as float32."""
    import torch
    from safetensors.torch import load_file, save_file

    for file in trained.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copyfile(file, output / file.name)
    weights = load_file(trained / "model.safetensors")
    halves = {name: tensor.to(torch.float16) for name, tensor in weights.items()}
    save_file(halves, output / "model.safetensors", metadata={"format": "pt"})
