"""Ray: found or started, with what its workers need, and left clean."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from agentfly_core.types import MissingDependency
from agentfly_learner_openrlhf.failures import ClusterError
from agentfly_learner_openrlhf.flags.upstream import REQUIREMENT
from agentfly_learner_openrlhf.job import ENV, Job
from agentfly_learner_openrlhf.options import LaunchOptions
from agentfly_learner_openrlhf.orphans import end_left

HOOK = "agentfly_learner_openrlhf.worker.install"

DEFAULTS = {"TOKENIZERS_PARALLELISM": "true", "NCCL_DEBUG": "WARN", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}
"""What OpenRLHF sets for its workers where the environment says nothing."""

HERE = "local"
"""Ray's address for a cluster that is to be started in this process."""

LOOK_SECONDS = 1.0
START_ATTEMPTS = 3


def require() -> None:
    """Find out that everything is installed.

    Raises:
        MissingDependency: it is not.
    """
    try:
        importlib.import_module("ray")
        importlib.import_module("openrlhf.cli.train_ppo_ray")
    except ImportError as error:
        raise MissingDependency(error.name or "openrlhf", "the learner 'openrlhf'", REQUIREMENT) from error


@contextlib.contextmanager
def connected(job: Job, options: LaunchOptions) -> Iterator[str]:
    """Ray for one launch, which ends with the block, and every process of the launch on this machine with it.

    Yields:
        where Ray's logs are.
    """
    import ray

    before = os.environ.get(ENV)
    os.environ[ENV] = str(job.path)  # inherited by a cluster that is started here
    try:
        with _signal_handlers_kept():
            context = _start(job, options)
        yield _log_folder(context)
    finally:
        ray.shutdown()
        if before is None:
            del os.environ[ENV]
        else:
            os.environ[ENV] = before
        if left := end_left(job.path):
            raise ClusterError(f"processes of this run could not be ended: {', '.join(map(str, left))}")


def _start(job: Job, options: LaunchOptions) -> Any:
    """``ray.init``. A busy machine may need more than the 30 seconds that Ray gives its own processes to start."""
    import ray

    for attempt in range(START_ATTEMPTS):
        try:
            return ray.init(
                address=address_of(options),
                namespace=f"agentfly-{job.id}",
                include_dashboard=None if is_shared(options) else False,
                log_to_driver=options.worker_logs,
                configure_logging=options.worker_logs,
                runtime_env=runtime_env(job, options),
            )
        except Exception as error:
            ray.shutdown()
            if "timed out during startup" not in str(error) or attempt + 1 == START_ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def is_shared(options: LaunchOptions) -> bool:
    """Whether Ray runs already, perhaps on several nodes, rather than being started here."""
    return address_of(options) != HERE


def address_of(options: LaunchOptions) -> str:
    """Of the cluster that is named. Ray by itself would look for the last one started here, even if it has ended."""
    return options.ray_address or os.environ.get("RAY_ADDRESS") or HERE


def runtime_env(job: Job, options: LaunchOptions) -> dict[str, Any]:
    """What Ray gives to each worker of the run."""
    variables = {name: os.environ.get(name, default) for name, default in DEFAULTS.items()}
    environment: dict[str, Any] = {
        "worker_process_setup_hook": HOOK,
        "env_vars": {**variables, ENV: str(job.path)},
    }
    if options.working_dir is not None:
        environment["working_dir"] = options.working_dir
    return environment


def wait_for_gpus(count: int, seconds: float, stopped: Callable[[], bool]) -> None:
    """Wait until the cluster has as many GPUs, or the run is stopped: OpenRLHF itself would wait for ever.

    Raises:
        ClusterError: they are not there in time.
    """
    import ray

    deadline = time.monotonic() + seconds
    while (found := ray.cluster_resources().get("GPU", 0)) < count and not stopped():
        if time.monotonic() >= deadline:
            raise ClusterError(
                f"the run needs {count} GPUs, but after {seconds:g} s the cluster has {found:g}. Add nodes, lower "
                "learner.options (agentfly train --dry-run shows the placement), or raise "
                "learner.options.cluster_timeout"
            )
        time.sleep(LOOK_SECONDS)


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Ray puts a handler of its own in the place of whoever listens for SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _log_folder(context: Any) -> str:
    import ray

    session = context.address_info.get("session_dir") or ray._private.worker.global_worker.node.get_session_dir_path()
    return f"{session}/logs"
