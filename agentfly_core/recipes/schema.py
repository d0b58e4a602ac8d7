"""The recipe a user writes, as pydantic models. Unknown keys are refused with the nearest name (see ``check``).

Every count is in the field's standard unit: a *task* is a row of the data, a *chain* one attempt at it, a *step*
one batch of ``tasks_per_step * chains_per_task`` chains and the optimizer steps made from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]


def _named(value: Any) -> Any:
    """``numeric_match`` is short for ``{name: numeric_match}``."""
    return {"name": value} if isinstance(value, str) else value


class Section(BaseModel):
    """Base of every part of a recipe: immutable, finite, no unknown keys, no silent coercion of text to numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Named(Section):
    """Something looked up by name, with the options of its factory."""

    name: str
    options: dict[str, Any] = {}


class ModelSection(Section):
    """Which model, in which chat format."""

    path: str
    """A folder, a hub id, or a name that a plugin offers (``tiny``)."""
    template: str
    """Name of the chat template: ``agentfly templates list``."""
    template_options: dict[str, Any] = {}
    """Of the template: ``{thinking: false}``."""
    history: Literal["append", "template"] = "append"
    """``append``: a chain only grows. ``template``: old turns are rewritten as the model's own template does."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = "auto"
    """``cpu``, ``cuda``, ``cuda:1``; ``auto`` takes a GPU if there is one."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"


class AgentSection(Named):
    """How the model acts."""

    name: str = "tool-calling"
    tools: list[Annotated[Named, BeforeValidator(_named)]] = []
    """Tools (``agentfly tools list``), by name or as ``{name: ..., options: {...}}``."""
    max_turns: Positive = 8
    """Turns after which a chain ends."""
    system_prompt: str | None = None
    """First message of tasks that have no system message of their own."""


class EnvironmentSection(Named):
    """A world to act in, one instance a chain."""

    isolation: Literal["object", "worker"] = "object"
    """``object``: in this process. ``worker``: each in a spawned process, for what is not thread-safe."""
    capacity: Positive | None = None
    """At most so many instances at once; None allows one a running chain."""


class ResourcesSection(Section):
    """How many environments, workers, sandboxes and containers there may be at once, and who counts them."""

    coordinator: str = "local"
    """``local``: this run counts for itself. A ``redis://``, ``rediss://`` (TLS) or ``unix://`` address: a Redis server
    counts for all runs that name it. ``redis``: at the address in AGENTFLY_REDIS_URL, a better place for a password."""
    pool: str = "default"
    """With Redis, runs of the same pool share its capacity, and must agree on it."""
    capacity: dict[str, Positive] = {}
    """Kind (``worker``, ``process``, ``docker`` ...) -> instances at once, idle ones included."""
    total: Positive | None = None
    """Instances of all kinds together."""
    warm: Annotated[int, Field(ge=0)] = 0
    """Environments started ahead, besides those in use, while there is capacity that nobody waits for."""
    max_idle: Annotated[int, Field(ge=0)] = 64
    """Instances kept at most for their next lease."""
    ttl: Annotated[float, Field(gt=0)] = 60.0
    """Seconds after which what a dead process has leased is free again; with Redis the same in all runs of a pool."""
    lease_limit: Annotated[float, Field(gt=0)] | None = None
    """Seconds that one lease may last; None sets no limit."""


class DataSource(Section):
    """Rows: a file, or a function that yields them."""

    source: str
    """A .jsonl, .json, .csv or .parquet file, relative to the recipe or else to the working directory, or
    ``module:function``; the function is called with ``split``, ``seed`` and the options, and yields mappings."""
    options: dict[str, Any] = {}
    limit: Positive | None = None
    """Only so many rows, from the first."""


Source = Annotated[DataSource, BeforeValidator(lambda v: {"source": v} if isinstance(v, str) else v)]


class DataSection(Section):
    """Tasks for training and evaluation. An environment that lists its own tasks needs none."""

    train: Source | None = None
    eval: Source | None = None
    prompt: str = "prompt"
    """Column with the user's message (text), or with a list of messages."""
    id: str = "id"
    """Column that names a row; rows without one are named by their number."""
    shuffle: bool = True


class RewardSection(Named):
    """A reward and its weight in the sum."""

    weight: float = 1.0
    """Factor in the sum."""


class RolloutSection(Section):
    """How chains are run."""

    backend: Annotated[Named, BeforeValidator(_named)] = Named(name="hf")
    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_p: Fraction = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    max_tokens_per_turn: Positive = 512
    stop: list[Annotated[str, Field(min_length=1)]] = []
    """Texts that end a turn where they appear in what was sampled, besides the template's stop tokens."""
    max_tokens: Positive | None = None
    """Length limit of a segment, prompt included; None takes the model's."""
    max_concurrency: Positive = 256
    """Chains at once."""
    timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds a chain may take."""
    tool_timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds a tool call may take, for tools that set no limit of their own."""
    reward_timeout: Annotated[float, Field(gt=0)] = 120.0
    """Seconds scoring a chain may take, all rewards together; later it stays unscored."""
    max_observation_chars: Positive = 16_000
    """A longer observation of the environment loses its middle, as a tool's output does."""


class OptimizerSection(Section):
    """The optimizer and its schedule."""

    name: Literal["adamw", "muon"] = "adamw"
    """``muon``: Muon on hidden matrices with ``lr * matrix_lr_scale``, AdamW on the rest."""
    lr: Annotated[float, Field(gt=0)] = 1e-6
    matrix_lr_scale: Annotated[float, Field(gt=0)] = 5.0
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.95)
    eps: Annotated[float, Field(ge=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    final_lr_fraction: Annotated[float, Field(ge=0, le=1)] = 0.0


class KLSection(Section):
    """Penalty for leaving the reference model (the one training began with)."""

    coef: Annotated[float, Field(ge=0)] = 0.0
    kind: Literal["k1", "k2", "k3"] = "k3"


class TrainSection(Section):
    """The training loop."""

    steps: Positive = 100
    tasks_per_step: Positive = 8
    chains_per_task: Positive = 8
    epochs: Positive = 1
    """Passes over each batch."""
    minibatches: Positive = 1
    """Optimizer steps a pass: the batch's groups are split into so many parts."""
    micro_batch_tokens: Positive = 16384
    """Tokens, padding included, of one forward pass; changes memory, never the gradient."""
    optimizer: OptimizerSection = OptimizerSection()
    kl: KLSection = KLSection()


class EvalSection(Section):
    """Evaluation on held-out tasks."""

    tasks: Positive = 200
    chains_per_task: Positive = 1
    every: Annotated[int, Field(ge=0)] = 0
    """Also every so many steps; 0: only before and after."""
    before: bool = True
    after: bool = True
    modes: list[Literal["sampled", "greedy"]] = ["sampled"]
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Of the sampled mode."""
    top_p: Fraction = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    success_threshold: float = 1.0
    """A chain with at least this reward counts as a success."""


class SFTSection(Section):
    """Supervised training on conversations (``agentfly sft``), with the same template and masks as RL."""

    data: Source
    """Rows with ``messages``; the assistant's are learned. A row's own ``tools`` (names) replace the agent's."""
    steps: Positive = 100
    batch_size: Positive = 16
    context_weight: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Loss weight of tokens that the model would not sample itself."""
    shuffle: bool = True
    micro_batch_tokens: Positive = 16384
    optimizer: OptimizerSection = OptimizerSection(lr=1e-5)


class RunSection(Section):
    """What is written where."""

    root: str = "runs"
    """Folder in which the run folder is made, relative to the working directory."""
    checkpoint_every: Annotated[int, Field(ge=0)] = 10
    """Steps; 0 keeps only the final one."""
    keep_checkpoints: Positive = 2
    trackers: list[Annotated[Named, BeforeValidator(_named)]] = []
    """Where metrics go besides ``metrics.jsonl``: ``[tensorboard]``."""
    save_trajectories: bool = True


class Recipe(Section):
    """Everything a run is made from."""

    name: str = "run"
    """Begins the name of the run folder."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Of data order, sampling and initialisation."""
    plugins: list[str] = []
    """Your own Python files (relative to the recipe) or modules with tools, rewards and hooks."""
    model: ModelSection
    agent: Annotated[AgentSection, BeforeValidator(_named)] = AgentSection()
    environment: Annotated[EnvironmentSection | None, BeforeValidator(_named)] = None
    resources: ResourcesSection = ResourcesSection()
    data: DataSection = DataSection()
    rewards: list[Annotated[RewardSection, BeforeValidator(_named)]] = []
    """Summed by weight. Empty with an environment: its step rewards are summed."""
    rollout: RolloutSection = RolloutSection()
    algorithm: Annotated[Named, BeforeValidator(_named)] = Named(name="grpo")
    learner: Annotated[Named, BeforeValidator(_named)] = Named(name="local")
    train: TrainSection = TrainSection()
    evaluation: EvalSection = EvalSection()
    sft: SFTSection | None = None
    run: RunSection = RunSection()
    deterministic: bool = False
    """Fixed generation waves and no overlap: a resumed run repeats an unbroken one bit for bit."""

    @model_validator(mode="after")
    def _one_capacity_of_environments(self) -> Recipe:
        own = self.environment and self.environment.capacity
        if self.environment and own and self.resources.capacity.get(self.environment.isolation, own) != own:
            raise ValueError(
                f"environment.capacity and resources.capacity.{self.environment.isolation} differ: give one of them"
            )
        if self.resources.warm > self.resources.max_idle:
            raise ValueError("resources.warm is more than resources.max_idle keeps: raise max_idle")
        return self

    @model_validator(mode="after")
    def _training_samples_the_whole_distribution(self) -> Recipe:
        if self.rollout.top_p < 1 or self.rollout.top_k > 0:
            raise ValueError(
                "rollout.top_p < 1 and rollout.top_k > 0 cut the distribution that the logprobs describe: "
                "training needs top_p: 1.0 and top_k: 0"
            )
        return self


def base_of(path: Path | None) -> Path:
    """The folder that relative paths of a recipe start from."""
    return path.resolve().parent if path else Path.cwd()
