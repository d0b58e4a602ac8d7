"""The length rule that every backend of this package applies before a request is queued."""

from __future__ import annotations

from agentfly_core.types import GenerationRequest, UsageError


def check_length(request: GenerationRequest, max_model_len: int | None) -> None:
    """Refuse a request that could outgrow the model.

    Nothing is clamped: a backend samples up to ``max_tokens`` or refuses. A caller that wants "as many as fit" asks
    for ``min(max_tokens, max_model_len - len(prompt_ids))``.

    Raises:
        UsageError: the prompt is empty, or prompt plus ``max_tokens`` exceed ``max_model_len``.
    """
    prompt, new = len(request.prompt_ids), request.sampling.max_tokens
    if prompt == 0:
        raise UsageError("a generation request has an empty prompt; give at least one token id")
    if max_model_len is not None and prompt + new > max_model_len:
        raise UsageError(
            f"a prompt of {prompt} tokens and max_tokens {new} exceed the model's limit of {max_model_len} tokens; "
            f"shorten the prompt or set max_tokens to at most {max(max_model_len - prompt, 0)}"
        )
