"""``learner.options``: typed options of this learner, and flags of OpenRLHF by their own names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from agentfly_core.recipes.schema import Fraction, Positive
from agentfly_core.types import UnknownName, UsageError
from agentfly_learner_openrlhf.options import LaunchOptions


class LearnerOptions(LaunchOptions):
    """Everything in ``learner.options`` that is no flag of OpenRLHF.

    GPUs are counted over the whole cluster: ``nodes * gpus_per_node``. With ``colocate: all`` each of them both trains
    and holds a vLLM engine; otherwise they are divided.
    """

    nodes: Positive = 1
    gpus_per_node: Positive = 1
    colocate: Literal["all", "training", "none"] | None = None
    """``all``: every GPU trains and generates in turn. ``training``: policy and reference (with ``async`` the critic as
    well) share GPUs, the engines have others. ``none``: each has its own. None: ``training`` with ``async``, else
    ``all``."""
    engines: Positive | None = None
    """vLLM engines; None fills all GPUs with ``colocate: all``, else half of them."""
    tensor_parallel: Positive = 1
    """GPUs of one engine."""
    engine_memory: Fraction | None = None
    """Share of a GPU's memory that an engine takes; None is 0.6 with ``colocate: all``, else 0.9."""
    sleep: bool = True
    """With ``colocate: all``, engines and trainer give their memory back while the other works."""
    prefix_caching: bool | None = None
    """Engines keep the keys and values of earlier turns; None is true, but for ``partial_rollout``."""
    asynchronous: Annotated[bool, Field(alias="async")] = False
    """Generate the next batch while training on this one, with weights that are up to ``queue`` steps older."""
    queue: Positive = 1
    """With ``async``: batches that may wait for the trainer."""
    partial_rollout: bool = False
    """With ``async``: weights are exchanged in the middle of chains, so that none is waited for."""
    zero_stage: Literal[1, 2, 3] = 2
    """DeepSpeed's ZeRO: 1 shards the optimizer over the GPUs, 2 the gradients as well, 3 also the weights."""
    offload_optimizer: bool = False
    """Keep the optimizer's state in the memory of the machine."""
    offload_reference: bool = False
    """The same for the reference model."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass instead of keeping them."""
    packing: bool = False
    """Sequences without padding, up to ``train.micro_batch_tokens`` at once; needs flash attention."""
    ring_attention: Positive = 1
    """GPUs that share one sequence; needs ``packing``."""
    train_tensor_parallel: Positive = 1
    """GPUs that share each matrix of the models being trained."""
    critic_lr: Annotated[float, Field(gt=0)] = 9e-6
    """Learning rate of the critic, for algorithms that need one."""
    critic_warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps in which the critic alone learns."""
    filter_flat_groups: bool = False
    """Replace groups whose chains all have the same reward by others, until the batch is full."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Save the running average of the weights with this decay instead of the last ones."""

    @classmethod
    def split(cls, options: Mapping[str, Any]) -> tuple[LearnerOptions, dict[str, Any]]:
        """The typed options, and OpenRLHF's flags by their names without dashes: ``{"ds.zpg": 8}``.

        A flag may be written with dots or nested: ``{"ds": {"zpg": 8}}`` is what ``learner.options.ds.zpg=8`` on the
        command line makes.

        Raises:
            UsageError: an unknown option (with the nearest names), or one of the wrong type.
        """
        known = {field.alias or name: name for name, field in cls.model_fields.items()}
        own = {name: value for name, value in options.items() if name in known}
        rest = {name: value for name, value in options.items() if name not in known}
        for name, value in rest.items():
            if name.lower().startswith("lora"):
                raise UsageError(f"learner.options.{name}: {LORA}")
            if name in LOCAL:
                raise UsageError(f"learner.options.{name}: an option of the learner 'local'; leave it out")
            if "." not in name and not isinstance(value, Mapping):
                raise UnknownName(
                    "option of the learner 'openrlhf'", name, known, hint="(OpenRLHF's own flags are dotted: ds.zpg)"
                )
        try:
            return cls.model_validate(own), dict(_flatten(rest))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, ("learner.options", *first["loc"])))
            message = first["msg"].replace("Input should be", "must be").removeprefix("Value error, ")
            raise UsageError(f"{place}: {message}, got {first['input']!r:.80}") from error


LOCAL = ("recompute_old_logp", "share_prompts")
"""Options of the learner ``local``, which stay behind when a recipe's ``learner.name`` is changed."""

LORA = (
    "LoRA does not work in OpenRLHF 0.11.2: its weight updates reach vLLM under PEFT's parameter names, which vLLM "
    "refuses. Train all weights (zero_stage: 3 and offload_optimizer: true save memory)"
)


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flatten(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner
