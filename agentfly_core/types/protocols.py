"""The extension points of a chain as Protocols (see ``services`` for those around it). Plugins need not inherit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from agentfly_core.types.agents import Decision
from agentfly_core.types.environments import Observation, StepResult
from agentfly_core.types.messages import AssistantTurn, Message, ToolSchema
from agentfly_core.types.tasks import Split, Task
from agentfly_core.types.tokens import Appended, Generation, GenerationRequest, History, NewSegment, SamplingParams
from agentfly_core.types.tools import RewardResult, ToolContext, ToolOutcome
from agentfly_core.types.trajectories import GroupId, Trajectory

if TYPE_CHECKING:
    import tokenizers
    from torch import Tensor

HistoryMode: TypeAlias = Literal["append", "template"]


@runtime_checkable
class Tool(Protocol):
    """Something a model can call. ``@tool`` makes one from a function.

    Optional members, looked up by name: ``configured(**options) -> Tool``, the same tool with a recipe's options, and
    ``needs``, the names of options that a recipe must give.
    """

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

        Every failure is an outcome, but for one that is no fault of the model: a resource that cannot be had. A
        synchronous function runs in a thread.

        Raises:
            ResourceError: what the tool needs could not be had. The chain ends with it, unscored.
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

    def encode_continuation(self, text: str) -> list[int]:
        """Ids of text that goes on where a turn stopped, inside the same assistant message: nothing but the text.

        It is encoded in one call, and control-token text in it never becomes a control token.
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

    Optional members, looked up by name:

    ``show_tools: bool``, False where the template is not to list the tools in the prompt because the agent has a
    notation of its own for them.

    ``stop_texts: tuple[str, ...]``, texts that end a turn, besides those of the sampling parameters.

    ``continues: bool``, True where an observation goes on within the assistant message that was being sampled: the
    text of its messages, joined, with no delimiters. A turn that a stop token ended has closed its message, and is
    answered as usual. Such an agent needs append history.

    ``check_tools(tools: Mapping[str, Tool]) -> None``, which raises a ``UsageError`` for tools that the agent cannot
    work with. It is called before anything starts, but not where an environment brings tools of its own later.
    """

    name: ClassVar[str]

    def start(self, task: Task, observation: Observation | None, tools: Mapping[str, Tool]) -> list[Message]:
        """The opening messages.

        Args:
            observation: the environment's first one, or None without one.
            tools: the chain's, by name, the environment's own included: for an agent that says itself what there is.
        """
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
