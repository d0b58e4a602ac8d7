"""Putting a recipe's parts together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfly_core.plugins import Plugins
from agentfly_core.recipes.calling import build, check_options
from agentfly_core.recipes.schema import Recipe, RewardSection
from agentfly_core.types import Coordinator, GenerationBackend, Reward, SamplingParams, Tool, UsageError

if TYPE_CHECKING:
    from agentfly_core.recipes.engine import RecipeEngine
    from agentfly_core.recipes.load import LoadedRecipe


def collect_tools(recipe: Recipe, plugins: Plugins, base: Path) -> list[Tool]:
    """The agent's tools.

    Raises:
        UsageError: an unknown name, a wrong option, or two tools with one name.
    """
    tools: dict[str, Tool] = {}
    for section in recipe.agent.tools:
        tool = build_tool(section.name, section.options, plugins, base)
        if tool.name in tools:
            raise UsageError(f"agent.tools: two tools are named {tool.name!r}")
        tools[tool.name] = tool
    return list(tools.values())


def build_tool(name: str, options: Mapping[str, Any], plugins: Plugins, base: Path) -> Tool:
    """A registered tool, with options if there are any; relative paths among them start from ``base``.

    Raises:
        UsageError: an unknown name, or an option that it does not know, lacks or refuses.
    """
    tool: Tool = plugins.registry("tools").get(name)
    if missing := [need for need in getattr(tool, "needs", ()) if need not in options]:
        raise UsageError(f"tool {name!r} needs the option {missing[0]!r}")
    if not options:
        return tool
    made = build(f"tool {name!r}", _configured(name, tool), resolve_options(name, options, plugins, base))
    if isinstance(made, type) or not isinstance(made, Tool):
        raise UsageError(f"tool {name!r}: its factory made no Tool but {made!r:.60}")
    return made


def resolve_options(name: str, options: Mapping[str, Any], plugins: Plugins, base: Path) -> dict[str, Any]:
    """A tool's options as plain data, those annotated ``Path`` made absolute.

    Raises:
        UsageError: an option it does not know, or one of the wrong type.
    """
    if not options:
        return {}
    tool: Tool = plugins.registry("tools").get(name)
    checked = check_options(f"tool {name!r}", _configured(name, tool), options)
    paths = {
        key: str((base / value.expanduser()).resolve()) for key, value in checked.items() if isinstance(value, Path)
    }
    return {**options, **paths}


def _configured(name: str, tool: Tool) -> Callable[..., Any]:
    factory: Callable[..., Any] | None = getattr(tool, "configured", None)
    if factory is None:
        raise UsageError(f"tool {name!r} takes no options")
    return factory


def build_rewards(recipe: Recipe, plugins: Plugins) -> tuple[Reward | None, dict[str, frozenset[str]]]:
    """The weighted sum of the recipe's rewards, and the data fields that each of them needs.

    Without any, an environment's step rewards are summed, and a recipe without environment has none.
    """
    sections = recipe.rewards or ([RewardSection(name="environment_return")] if recipe.environment else [])
    rewards = [build_reward(section.name, section.options, plugins) for section in sections]
    wanted = {section.name: reward.fields for section, reward in zip(sections, rewards, strict=True)}
    if len(rewards) == 1 and sections[0].weight == 1.0:
        return rewards[0], wanted
    if not rewards:
        return None, {}
    from agentfly_core.rewards import WeightedReward

    return WeightedReward(rewards, [section.weight for section in sections]), wanted


def build_reward(name: str, options: dict[str, Any], plugins: Plugins) -> Reward:
    """A registered reward, or what a registered factory makes of the options."""
    item = plugins.registry("rewards").get(name)
    if isinstance(item, type) or not isinstance(item, Reward):
        item = build(f"reward {name!r}", item, options)
    elif options:
        raise UsageError(f"reward {name!r} takes no options, got {', '.join(options)}")
    if not isinstance(item, Reward):
        raise UsageError(f"reward {name!r}: its factory made no Reward but {item!r:.60}")
    return item


def build_engine(
    loaded: LoadedRecipe,
    backend: GenerationBackend,
    coordinator: Coordinator | None = None,
    folder: Path | None = None,
) -> RecipeEngine:
    """The recipe's rollout engine over a backend; closing it closes its resources.

    Args:
        coordinator: counts capacity, and stays the caller's to close; None takes the recipe's.
        folder: of the run, where the state of its resources is written for ``agentfly resources status``.
    """
    from agentfly_core.recipes.engine import RecipeEngine
    from agentfly_core.recipes.resources import build_coordinator, resources_of

    recipe = loaded.recipe
    rollout = recipe.rollout
    environment = loaded.environment_spec()
    own = None if coordinator else build_coordinator(recipe)
    return RecipeEngine(
        agent=loaded.agent(),
        template=loaded.template(),
        backend=backend,
        tools=loaded.tools,
        reward=loaded.reward,
        sampling=SamplingParams(
            rollout.temperature, rollout.top_p, rollout.top_k, rollout.max_tokens_per_turn, stop=tuple(rollout.stop)
        ),
        max_turns=recipe.agent.max_turns,
        max_tokens=rollout.max_tokens,
        environment=environment,
        resources=resources_of(recipe, loaded.plugins, coordinator or own, environment, folder),
        coordinator=own,
        max_concurrency=rollout.max_concurrency,
        chain_timeout=rollout.timeout,
        tool_timeout=rollout.tool_timeout,
        reward_timeout=rollout.reward_timeout,
        max_observation_chars=rollout.max_observation_chars,
        seed=recipe.seed,
        deterministic=recipe.deterministic,
        notify=loaded.plugins.notify,
    )
