"""A recipe with every name resolved and every field checked."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfly_core.plugins import Plugins
from agentfly_core.recipes.assemble import build_engine, build_rewards, collect_tools, resolve_options
from agentfly_core.recipes.calling import build, check_options
from agentfly_core.recipes.checking import check_recipe
from agentfly_core.recipes.files import SUFFIXES
from agentfly_core.recipes.locate import find_file, find_model, find_recipe
from agentfly_core.recipes.reading import apply_overrides, read_recipe_file
from agentfly_core.recipes.schema import Recipe, base_of
from agentfly_core.recipes.tasks import RecipeData
from agentfly_core.rollout.agents import check_agent
from agentfly_core.types import (
    Agent,
    Algorithm,
    ChatTemplate,
    Coordinator,
    GenerationBackend,
    Learner,
    MetricSink,
    ResourceSpec,
    Task,
    TemplateFamily,
    UsageError,
)

if TYPE_CHECKING:
    import tokenizers

    from agentfly_core.recipes.engine import RecipeEngine


def load_recipe(
    target: str | Path | Mapping[str, Any], overrides: Sequence[str] = (), *, plugins: Plugins | None = None
) -> LoadedRecipe:
    """Read, validate and resolve a recipe. Needs neither torch nor transformers.

    Args:
        target: a .yaml or .toml file, a mapping, or ``ENTRY:FILE`` for a recipe that an installed package offers.
        overrides: ``key=value`` with dotted keys; the values are YAML.
        plugins: loaded already; by default all installed ones are.

    Raises:
        UsageError: anything about it is wrong; the message names the file, the field and the way out.
    """
    path = None if isinstance(target, Mapping) else find_recipe(target)
    data = copy.deepcopy(dict(target)) if isinstance(target, Mapping) else read_recipe_file(find_recipe(target))
    overridden = apply_overrides(data, overrides)
    recipe = check_recipe(data, origin=str(path or "recipe"), overridden=overridden)
    try:
        loaded = LoadedRecipe(recipe, path, plugins or Plugins.load())
        loaded.check()
    except UsageError as error:
        if path is None or str(path) in str(error):
            raise
        raise UsageError(f"{path}: {error}") from error
    return loaded


class LoadedRecipe:
    """A recipe bound to the plugins it names. Parts that are heavy, or made anew each time, are methods.

    Attributes:
        recipe: the validated recipe.
        path: its file, or None.
        plugins: with the recipe's own files loaded.
        model_path: model folder or hub id.
        tools: the agent's tools.
        reward: what scores a chain; None if the recipe names no reward and has no environment.
    """

    def __init__(self, recipe: Recipe, path: Path | None, plugins: Plugins) -> None:
        self.recipe = recipe
        self.path = path
        self.plugins = plugins
        self._base = base_of(path)
        for target in recipe.plugins:
            plugins.load_path(target, base=self._base)
        self._modules = {Path(t).stem: (self._base / t).resolve() for t in recipe.plugins if t.endswith(".py")}
        self.model_path = find_model(recipe.model.path, self._base)
        self.tools = collect_tools(recipe, plugins, self._base)
        self.reward, self._wanted = build_rewards(recipe, plugins)

    def check(self) -> None:
        """Resolve the names that are still open, but build nothing heavy.

        Raises:
            UsageError: an unknown name, a wrong option, or data without what a reward asks for.
        """
        recipe = self.recipe
        options = recipe.model.template_options
        check_options("model.template_options", self._family.bind, options, supplied=("tokenizer", "history"))
        own = {tool.name: tool for tool in self.tools}
        check_agent(self.agent(), recipe.model.history, None if recipe.environment else own)
        self.environment_spec()
        for kind, section in (
            ("algorithms", recipe.algorithm),
            ("backends", recipe.rollout.backend),
            ("learners", recipe.learner),
        ):
            self.plugins.registry(kind).find(section.name)
        for tracker in recipe.run.trackers:
            factory = self.plugins.registry("trackers").get(tracker.name)
            check_options(f"tracker {tracker.name!r}", factory, tracker.options, supplied=("folder",))
        self._data.check(self._wanted)

    def check_training(self) -> Learner:
        """The learner, once everything that training needs has been found good.

        Raises:
            UsageError: no training data, no reward, a template that does not fit the tokenizer, a wrong option of the
                algorithm, or whatever else the learner cannot honour, each with the field and a way out.
        """
        next(self.train_tasks())
        if self.reward is None:
            raise UsageError("rewards: training needs at least one")
        self.template()
        section = self.recipe.learner
        learner: Learner = self._build("learners", section.name, section.options)
        if refusals := [*self._algorithm_refusals(), *learner.check(self)]:
            text = refusals[0] if len(refusals) == 1 else "".join(f"\n  {line}" for line in refusals)
            raise UsageError(f"the learner {section.name!r} cannot honour this recipe: {text}")
        return learner

    def check_sft(self) -> None:
        """What ``agentfly sft`` needs: conversations, and a template that fits the tokenizer.

        Raises:
            UsageError: one of them is missing or wrong.
        """
        next(self.sft_rows())
        self.template()

    @cached_property
    def algorithm(self) -> Algorithm:
        """The RL algorithm with its options."""
        section = self.recipe.algorithm
        algorithm: Algorithm = self._build("algorithms", section.name, section.options)
        return algorithm

    def trackers(self, folder: Path) -> list[MetricSink]:
        """New metric sinks that write into a run folder."""
        return [self._build("trackers", t.name, t.options, folder=folder) for t in self.recipe.run.trackers]

    def tokenizer(self) -> tokenizers.Tokenizer:
        """The model's tokenizer."""
        from agentfly_core.templates import load_tokenizer

        return load_tokenizer(self.model_path)

    def template(self) -> ChatTemplate:
        """The chat template over the model's tokenizer.

        Raises:
            UsageError: they do not fit.
        """
        model = self.recipe.model
        tokenizer = self.tokenizer()
        try:
            return self._family.bind(tokenizer, history=model.history, **model.template_options)
        except UsageError as error:
            raise UsageError(f"model.template {model.template!r} with the model {self.model_path}: {error}") from error

    def agent(self) -> Agent:
        """A new agent."""
        section = self.recipe.agent
        prompt = {} if section.system_prompt is None else {"system_prompt": section.system_prompt}
        agent: Agent = self._build("agents", section.name, {**section.options, **prompt})
        return agent

    def environment_spec(self) -> ResourceSpec | None:
        """What each chain leases as its environment, or None."""
        section = self.recipe.environment
        if section is None:
            return None
        registration = self.plugins.registry("environments").find(section.name)
        factory = registration.resolve()
        options = check_options(f"environment {section.name!r}", factory, section.options)
        own_files = {str(path) for path in self._modules.values()} if section.isolation == "worker" else set()
        target = registration.item if isinstance(registration.item, str) else _import_path(factory, own_files)
        return ResourceSpec.make(section.isolation, target, options=options)

    def with_model(self, path: str | Path) -> LoadedRecipe:
        """The same recipe over other weights: a model folder, a hub id or a name that a package offers."""
        other = copy.copy(self)
        other.model_path = find_model(str(path), Path.cwd())
        return other

    def backend(self) -> GenerationBackend:
        """A new generation backend with the recipe's model."""
        section, model = self.recipe.rollout.backend, self.recipe.model
        backend: GenerationBackend = self._build(
            "backends",
            section.name,
            section.options,
            model=self.model_path,
            device=model.device,
            dtype=model.dtype,
            attention=model.attention,
        )
        return backend

    def engine(
        self, backend: GenerationBackend, *, coordinator: Coordinator | None = None, folder: Path | None = None
    ) -> RecipeEngine:
        """A new rollout engine over a backend, which stays the caller's to close.

        Args:
            coordinator: counts the capacity of resources for several engines; None takes the recipe's.
            folder: of the run, where the state of its resources is shown.
        """
        return build_engine(self, backend, coordinator, folder)

    def train_tasks(self, start: int = 0) -> Iterator[Task]:
        """Tasks for ever, the first ``start`` left out; their order depends on the recipe's seed alone."""
        return self._data.train(start)

    def eval_tasks(self, n: int | None = None) -> list[Task]:
        """The first ``n`` held-out tasks (``evaluation.tasks``), in the source's order; fewer if it ends."""
        return self._data.eval(n or self.recipe.evaluation.tasks)

    def sft_rows(self, start: int = 0) -> Iterator[dict[str, Any]]:
        """Conversations for ever, the first ``start`` left out: mappings with ``messages``."""
        return self._data.conversations(start)

    def resolved(self) -> dict[str, Any]:
        """The recipe as plain data with absolute paths: it loads again from anywhere."""
        plain = self.recipe.model_dump(mode="json")
        plain["plugins"] = [str(self._modules[Path(t).stem]) if t.endswith(".py") else t for t in self.recipe.plugins]
        if (self._base / self.recipe.model.path).is_dir() or Path(self.recipe.model.path).expanduser().is_dir():
            plain["model"]["path"] = self.model_path
        for tool in plain["agent"]["tools"]:
            tool["options"] = resolve_options(tool["name"], tool["options"], self.plugins, self._base)
        for source in (plain["data"]["train"], plain["data"]["eval"], (plain["sft"] or {}).get("data")):
            if source and source["source"].endswith(SUFFIXES):
                source["source"] = str(find_file(source["source"], self._base))
            elif source and ".py:" in source["source"]:
                file, _, function = source["source"].rpartition(":")
                source["source"] = f"{find_file(file, self._base)}:{function}"
        return plain

    @cached_property
    def _family(self) -> TemplateFamily:
        family: TemplateFamily = self.plugins.registry("templates").get(self.recipe.model.template)
        return family

    @cached_property
    def _data(self) -> RecipeData:
        section = self.recipe.environment
        factory = self.plugins.registry("environments").get(section.name) if section else None
        return RecipeData(self.recipe, self._base, self._modules, getattr(factory, "tasks", None))

    def _algorithm_refusals(self) -> list[str]:
        if self.algorithm.needs.groups and self.recipe.train.chains_per_task < 2:
            return [f"train.chains_per_task: {self.algorithm.name} compares chains of one task: use at least 2"]
        return []

    def _build(self, kind: str, name: str, options: Mapping[str, Any], **offered: Any) -> Any:
        factory = self.plugins.registry(kind).get(name)
        return build(f"{kind.rstrip('s')} {name!r}", factory, options, **offered)


def _import_path(factory: Any, own_files: set[str]) -> str:
    """Where a worker process, or this one, imports the factory from; a recipe's own files go by their path."""
    module, name = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", "<none>")
    if "<" in name:
        raise UsageError(f"environment: {factory!r} must be a class or function at the top of a module")
    file = getattr(sys.modules.get(module), "__file__", None)
    return f"{file if file in own_files else module}:{name}"
