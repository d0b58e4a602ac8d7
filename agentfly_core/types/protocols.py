"""The extension points as Protocols. Plugins need not inherit from anything here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from agentfly_core.types.agents import Decision
from agentfly_core.types.batches import AdvantageOutput, LossOutput, Needs, TrainBatch
from agentfly_core.types.environments import Observation, StepResult
from agentfly_core.types.messages import AssistantTurn, Message, ToolSchema
from agentfly_core.types.resources import CoordinatorStatus, Isolation, ResourceSpec, Ticket
from agentfly_core.types.tasks import Split, Task
from agentfly_core.types.tokens import Appended, Generation, GenerationRequest, History, NewSegment, SamplingParams
from agentfly_core.types.tools import RewardResult, ToolContext, ToolOutcome
from agentfly_core.types.trajectories import GroupId, Trajectory

if TYPE_CHECKING:
    import threading

    import tokenizers
    from torch import Tensor

HistoryMode: TypeAlias = Literal["append", "template"]


@runtime_checkable
class Tool(Protocol):
    """Something a model can call. ``@tool`` makes one from a function."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments (an object)."""
        ...

    @property
    def exclusive(self) -> bool:
        """True: never runs beside another call of the same turn."""
        ...

    def schema(self) -> ToolSchema:
        """What the model is shown."""
        ...

    def check_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The validated arguments.

        Raises:
            InvalidArguments: with a text from which the model can correct itself.
        """
        ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Validate, run within the tool's timeout and concurrency limit, and return the outcome.

        Never raises but for cancellation. A synchronous function runs in a thread.
        """
        ...


@runtime_checkable
class Reward(Protocol):
    """Scores a finished trajectory. ``@reward`` makes one from a function."""

    @property
    def name(self) -> str: ...
    @property
    def fields(self) -> frozenset[str]:
        """Data-set fields without which it cannot score; checked when a recipe is loaded."""
        ...

    async def score(self, trajectory: Trajectory, context: ToolContext) -> RewardResult:
        """The score. Any exception, or a number that is not finite, leaves the trajectory unscored."""
        ...


@runtime_checkable
class ChatTemplate(Protocol):
    """A model's chat format bound to one tokenizer: tokens in, parsed turn out.

    Ids are plain ints. All encoding is of whole strings in one tokenizer call, without added special tokens.
    """

    name: str
    history: HistoryMode

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end a turn; the first is the one a cut turn is closed with."""
        ...

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        """Ids of the opening messages with the generation prompt.

        Raises:
            UsageError: a message that the format cannot carry.
        """
        ...

    def encode_reply(self, message: Message) -> list[int]:
        """Ids of an assistant message as if the model had sampled it, end token included: what SFT trains on.

        Its content goes in as raw text, then its ``tool_calls`` in the format's own writing.

        Raises:
            UsageError: a message that the format cannot carry.
        """
        ...

    def encode_observation(self, messages: Sequence[Message], *, after: Generation) -> list[int]:
        """Ids from the end of ``after`` to the next generation prompt.

        Begins with the end token unless the last id of ``after`` is a stop token: the ids decide, not the finish
        reason.
        """
        ...

    def extend(
        self, history: History, observation: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> Appended | NewSegment:
        """Continue the segment (always, in append history) or say with which prompt a new one opens."""
        ...

    def parse(self, generation: Generation) -> AssistantTurn:
        """The turn in parts. Never raises on model output: what cannot be read becomes a ``CallError``."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, control tokens spelled out; the trailing stop token of a turn too."""
        ...


@runtime_checkable
class TemplateFamily(Protocol):
    """What a plugin registers as a template: knows a format, is bound to a tokenizer later."""

    @property
    def name(self) -> str: ...

    def bind(self, tokenizer: tokenizers.Tokenizer, *, history: HistoryMode = "append", **options: Any) -> ChatTemplate:
        """The template over this tokenizer.

        Raises:
            UsageError: the tokenizer lacks a control token, or an option is not known.
        """
        ...


@runtime_checkable
class Environment(Protocol):
    """A stateful world, one instance a chain at a time.

    Optional members, looked up by name: ``tools() -> Sequence[Tool]``, ``admissible_actions() -> Sequence[str]``,
    ``anchor() -> str`` (async or not), and the static ``tasks(split, ...) -> Iterable[Task]``.

    An instance may live in another process. So ``tools`` is best static too, and a tool acts through
    ``context.environment.step``, which is recorded: step rewards go to the turn, and a ``done`` result ends the chain.
    A tool that steps is ``exclusive``.
    """

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the task; the same task and seed begin the same episode."""
        ...

    async def step(self, action: str) -> StepResult:
        """Act. An action that the world does not understand is an observation, not an exception."""
        ...

    async def close(self) -> None:
        """Free everything; calling it twice does nothing."""
        ...


@runtime_checkable
class GenerationBackend(Protocol):
    """Token ids in, token ids out.

    A backend that lives on a loop of its host says so in an optional attribute ``loop``: the engine then hands every
    ``generate`` over to that loop. Without one, ``generate`` is awaited on the engine's loop.
    """

    @property
    def weight_version(self) -> int: ...
    @property
    def max_model_len(self) -> int | None:
        """Longest prompt plus generation, in tokens; None where there is no limit."""
        ...

    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample one turn. Concurrent calls are batched. Cancelling the call frees its place in the batch.

        Raises:
            UsageError: prompt and max_tokens exceed ``max_model_len``.
        """
        ...

    async def update_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over new weights, named as in the model's state dict; nothing sampled later uses the old ones."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class WaveBackend(GenerationBackend, Protocol):
    """A backend that can sample a fixed set of requests together, for bit-exact repetition."""

    async def generate_wave(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Sample all, in this order, in one batch that nothing else joins."""
        ...


class Agent(Protocol):
    """How a model's output becomes actions. Holds no per-chain state and owns no engine.

    Optional member, looked up by name: ``show_tools: bool``, False where the template is not to list the tools in the
    prompt because the agent has a notation of its own for them.
    """

    name: ClassVar[str]

    def start(self, task: Task, observation: Observation | None) -> list[Message]:
        """The opening messages. ``observation`` is the environment's first one, or None without one."""
        ...

    def decide(self, turn: AssistantTurn, tools: Mapping[str, Tool], context: ToolContext) -> Decision:
        """What to do after a turn. Called for cut turns (``turn.cut``) as well.

        Finishing on a cut turn ends the chain as ``max_tokens``, not as ``completed``.
        """
        ...

    def observe(self, outcomes: Sequence[ToolOutcome]) -> list[Message]:
        """The observation's messages for the outcomes of one turn."""
        ...

    def observe_step(self, result: StepResult) -> list[Message]:
        """The observation's messages for a raw environment step."""
        ...


class RolloutEngine(Protocol):
    """Runs many chains at once on its own thread and event loop."""

    def submit(
        self,
        task: Task,
        chain_index: int,
        group: GroupId,
        *,
        sampling: SamplingParams | None = None,
        split: Split = "train",
    ) -> Future[Trajectory]:
        """Start one chain; callable from any thread.

        The future never raises but ``CancelledError``: every failure is a status of its trajectory. Cancelling it
        ends the chain and releases what it holds.
        """
        ...

    def run(
        self,
        tasks: Iterable[Task],
        *,
        chains: int = 1,
        sampling: SamplingParams | None = None,
        split: Split = "train",
        label: str = "",
    ) -> Iterable[Trajectory]:
        """Submit ``chains`` chains for each task and yield trajectories as they finish.

        Their group is ``label/task.id``, or the task's id without a label.
        """
        ...

    def pause(self) -> None:
        """Start no new generation until ``resume``; the time in between counts against no deadline."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None:
        """Abort what still runs, release everything, end the thread."""
        ...


@runtime_checkable
class Algorithm(Protocol):
    """Advantages and a loss: data plus pure functions over tensors."""

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> Needs: ...

    def advantages(self, batch: TrainBatch) -> AdvantageOutput:
        """Advantages of the whole update batch, (B, T-1)."""
        ...

    def policy_loss(
        self,
        logp: Tensor,
        old_logp: Tensor,
        rollout_logp: Tensor | None,
        advantages: Tensor,
        mask: Tensor,
        *,
        token_count: int,
        nonempty_count: int,
        chain_count: int,
        scale: float = 1.0,
        chain: Tensor | None = None,
    ) -> LossOutput:
        """Loss of some rows of an optimizer step; the losses of all its micro-batches add up to the step's.

        Args:
            logp: (R, T-1), the variable of the gradient. R rows of the batch, the rows of a chain together.
            old_logp, rollout_logp, advantages: (R, T-1).
            mask: (R, T-1) bool.
            token_count: sampled tokens of the whole optimizer step, over all ranks.
            nonempty_count: its chains with at least one sampled token.
            chain_count: all its real chains, empty and unscored ones too, padding rows never.
            scale: multiplies the result (ranks times accumulation steps).
            chain: (R,) which chain each row belongs to; None means that every row is a chain of its own.
        """
        ...


class Lease(Protocol):
    """A resource held for a while."""

    @property
    def spec(self) -> ResourceSpec: ...
    @property
    def resource(self) -> Any:
        """The provider's handle, for ``worker`` the object's proxy.

        Raises:
            LeaseLost: the lease ran out or its instance died.
        """
        ...


class ResourceManager(Protocol):
    """Hands out warm, isolated instances within a coordinated capacity."""

    def lease(self, spec: ResourceSpec, *, owner: str) -> AbstractAsyncContextManager[Lease]:
        """Wait in order for capacity, then hold an instance; it is reset, kept warm or replaced on exit.

        Raises:
            ResourceError: it cannot be started, or its isolation is weaker than the spec demands.
        """
        ...

    async def close(self) -> None:
        """Stop every instance."""
        ...


@runtime_checkable
class ResourceProvider(Protocol):
    """Starts and stops one kind of resource."""

    @property
    def isolation(self) -> Isolation: ...

    async def start(self, spec: ResourceSpec, *, run_id: str) -> Any:
        """A new instance. Cancelling the call leaves nothing behind."""
        ...

    async def health(self, instance: Any) -> bool:
        """Whether it can be handed out."""
        ...

    async def reset(self, instance: Any) -> bool:
        """Make it as new; False says that it must be replaced."""
        ...

    async def stop(self, instance: Any) -> None:
        """End it and everything it started; calling it twice does nothing."""
        ...

    async def sweep(self, run_id: str) -> int:
        """End what a crashed run left; how many there were."""
        ...


@runtime_checkable
class Coordinator(Protocol):
    """Counts capacity, in this process or across a cluster. First come, first served within a kind."""

    async def acquire(self, kind: str, owner: str, *, amount: int = 1, ttl: float = 60.0) -> Ticket:
        """Wait for ``amount`` of ``kind``. Cancelling the wait leaves no trace.

        Raises:
            ResourceError: more than the whole capacity is asked for.
        """
        ...

    async def renew(self, ticket: Ticket, *, ttl: float = 60.0) -> Ticket:
        """Hold on for ``ttl`` more seconds.

        Raises:
            LeaseLost: it has expired or was released.
        """
        ...

    async def release(self, ticket: Ticket) -> None:
        """Give it back; doing so twice, or after expiry, does nothing."""
        ...

    async def status(self) -> list[CoordinatorStatus]: ...


@runtime_checkable
class MetricSink(Protocol):
    """Where a run's numbers go besides ``metrics.jsonl``."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class Learner(Protocol):
    """Drives training of a recipe. Gets the loaded recipe; see ``recipes.load.LoadedRecipe``."""

    def check(self, recipe: Any) -> list[str]:
        """Reasons, each naming a field and a way out, for which it cannot honour the recipe; [] if it can."""
        ...

    def train(self, recipe: Any, folder: Any, *, resume: bool = False, stop: threading.Event | None = None) -> None:
        """Train into the run folder until the recipe's last step or until ``stop`` is set.

        Args:
            folder: a ``runs.RunFolder``.
            resume: go on from the folder's latest checkpoint.
            stop: set from another thread or a signal handler: end the step in hand, save, return.
        """
        ...
