"""A backend that replays given turns: for tests, and for trying a plugin out without a model."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from agentfly_core.backends.limits import check_length
from agentfly_core.backends.stopping import Decoder, StopTexts
from agentfly_core.types import Generation, GenerationRequest, MissingDependency, SamplingParams, UsageError

if TYPE_CHECKING:
    from torch import Tensor

ChainKey: TypeAlias = "tuple[str, int, int] | None"


class _Encoding(Protocol):
    @property
    def ids(self) -> list[int]: ...


class _Tokenizer(Protocol):
    """What is needed of a ``tokenizers.Tokenizer``."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> _Encoding: ...


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One turn to replay.

    A turn ends as a model's would: at the first stop id or with the id that completes a stop text (both kept), with
    finish reason ``stop``; at ``max_tokens`` or at the end of the script without either, with ``length``.

    Attributes:
        content: text, encoded with the backend's tokenizer, or token ids, replayed as they are.
        cut: leave out the stop id that otherwise follows text (the request's first, unless the text ends in one).
        logprobs: one per id of ``content`` (and one for the stop id that follows text), or one number for all. None
            gives -1/8, -2/8, -3/8 ..., so that a test sees a shifted column.
        delay: seconds before it returns.
        error: raised, after the delay, in place of returning.
    """

    content: str | Sequence[int] = ""
    cut: bool = False
    logprobs: Sequence[float] | float | None = None
    delay: float = 0.0
    error: BaseException | None = None


TurnLike: TypeAlias = "ScriptedTurn | str | Sequence[int]"
Script: TypeAlias = (
    "Sequence[TurnLike] | Mapping[ChainKey, Sequence[TurnLike]] | Callable[[GenerationRequest], TurnLike]"
)


class ScriptedBackend:
    """Replays turns instead of sampling them. Implements ``GenerationBackend`` and ``WaveBackend``.

    Args:
        turns: the turns that every chain gets, one a request (chains are told apart by ``chain_key``); or such a
            list for each ``chain_key``; or a function of the request.
        tokenizer: a ``tokenizers.Tokenizer``; needed where a turn is given as text, and for requests with ``stop``.
        max_model_len: as of a model; None for no limit.
        version: weight version at the start.

    Attributes:
        requests: every request that came, in order.
        running: requests being served now.
        peak: the most that were ever served at once.
    """

    def __init__(
        self,
        turns: Script,
        tokenizer: _Tokenizer | None = None,
        *,
        max_model_len: int | None = None,
        version: int = 0,
    ) -> None:
        if isinstance(turns, str):
            raise UsageError(f"ScriptedBackend takes a list of turns, not one text: write [{turns!r:.60}]")
        self._turns = turns
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len
        self._version = version
        self._lock = threading.Lock()
        self._served: Counter[ChainKey] = Counter()
        self._closed = False
        self.requests: list[GenerationRequest] = []
        self.running = 0
        self.peak = 0

    @property
    def weight_version(self) -> int:
        """Version of the last ``update_weights``."""
        return self._version

    @property
    def max_model_len(self) -> int | None:
        """As given."""
        return self._max_model_len

    async def generate(self, request: GenerationRequest) -> Generation:
        """The chain's next turn.

        Raises:
            UsageError: the script has no such turn or one with a forbidden id, a text or ``stop`` came without a
                tokenizer, the request is too long, or the backend is closed.
        """
        check_length(request, self._max_model_len)
        with self._lock:
            if self._closed:
                raise UsageError("the scripted backend is closed")
            self.requests.append(request)
            turn = self._next(request)
            self.running += 1
            self.peak = max(self.peak, self.running)
        first_version = self._version
        try:
            await asyncio.sleep(turn.delay)
            if turn.error is not None:
                raise turn.error
            return self._replay(turn, request, first_version)
        finally:
            with self._lock:
                self.running -= 1

    async def generate_wave(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """One turn for each request, in this order; the first error of the wave is raised."""
        return list(await asyncio.gather(*(self.generate(request) for request in requests)))

    async def update_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Only the version is kept."""
        self._version = version

    async def close(self) -> None:
        """Refuse further requests."""
        self._closed = True

    def _next(self, request: GenerationRequest) -> ScriptedTurn:
        if callable(self._turns):
            return _as_turn(self._turns(request))
        key = request.chain_key
        turns = self._turns.get(key, ()) if isinstance(self._turns, Mapping) else self._turns
        number = self._served[key]
        if number >= len(turns):
            raise UsageError(f"the script of chain {key} has {len(turns)} turns, but turn {number + 1} was asked for")
        self._served[key] += 1
        return _as_turn(turns[number])

    def _replay(self, turn: ScriptedTurn, request: GenerationRequest, first_version: int) -> Generation:
        sampling = request.sampling
        ids = self._ids(turn, [id for id in sampling.stop_token_ids if id not in sampling.forbidden_token_ids])
        logprobs = _logprobs(turn.logprobs, len(ids))
        ends = self._ends(ids, sampling)
        end = min(len(ids) if ends is None else ends, sampling.max_tokens)
        if wrong := set(ids[:end]).intersection(sampling.forbidden_token_ids):
            raise UsageError(f"the script has a turn with the id {min(wrong)}, which the request forbids")
        stopped = end == ends
        return Generation(
            token_ids=tuple(ids[:end]),
            logprobs=tuple(logprobs[:end]),
            finish_reason="stop" if stopped else "length",
            weight_version=first_version,
            last_weight_version=self._version,
        )

    def _ends(self, ids: list[int], sampling: SamplingParams) -> int | None:
        """Ids up to and with the first stop id, or the first that completes a stop text; None if there is none."""
        stops = None
        if sampling.stop:
            if not isinstance(self._tokenizer, Decoder):
                raise UsageError("the request has `stop`: give ScriptedBackend a tokenizer that decodes")
            stops = StopTexts(self._tokenizer, sampling.stop)
        for end in range(1, len(ids) + 1):
            if ids[end - 1] in sampling.stop_token_ids or (stops is not None and stops.appear(ids[:end])):
                return end
        return None

    def _ids(self, turn: ScriptedTurn, stop_token_ids: Sequence[int]) -> list[int]:
        if not isinstance(turn.content, str):
            return list(turn.content)
        if self._tokenizer is None:
            raise UsageError(f"the scripted turn {turn.content!r:.60} is text: give ScriptedBackend a tokenizer")
        ids = list(self._tokenizer.encode(turn.content, add_special_tokens=False).ids)
        if stop_token_ids and not turn.cut and not (ids and ids[-1] in stop_token_ids):
            ids.append(stop_token_ids[0])
        return ids


def scripted_backend(model: str | Path, *, turns: Sequence[str], max_model_len: int | None = None) -> ScriptedBackend:
    """The ``scripted`` backend of a recipe: texts replayed by every chain, in the tokens of the model's tokenizer.

    Args:
        model: folder with a ``tokenizer.json``; no weights are read.

    Raises:
        UsageError: the folder has no ``tokenizer.json``.
        MissingDependency: ``tokenizers`` is not installed.
    """
    path = Path(model) / "tokenizer.json"
    if not path.is_file():
        raise UsageError(f"the scripted backend found no tokenizer at {path}; give a model folder that has one")
    try:
        import tokenizers
    except ImportError as error:
        raise MissingDependency("tokenizers", "the scripted backend", "agentfly-core[tokenizers]") from error
    return ScriptedBackend(turns, tokenizers.Tokenizer.from_file(str(path)), max_model_len=max_model_len)


def _as_turn(turn: Any) -> ScriptedTurn:
    return turn if isinstance(turn, ScriptedTurn) else ScriptedTurn(turn)


def _logprobs(given: Sequence[float] | float | None, count: int) -> list[float]:
    if given is None:
        return [-(i + 1) / 8 for i in range(count)]
    if isinstance(given, (int, float)):
        return [float(given)] * count
    if len(given) != count:
        raise UsageError(f"a scripted turn has {count} token ids but {len(given)} logprobs")
    return [float(value) for value in given]
