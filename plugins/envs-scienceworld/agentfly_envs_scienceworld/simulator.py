"""The simulator: a Java process of its own, spoken to through py4j."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import IO, Any

from agentfly_core.types import MissingDependency, ResourceError, UsageError

HEAP = 256
"""MiB of Java's heap: what the largest task needs. Without a limit Java takes up to a quarter of the machine's."""


class Simulator:
    """One ScienceWorld in one Java process, which ends with this one, whatever ends it. Not for threads.

    It is the simulator of the package ``scienceworld``, without the package's Python side: that lists some thousand
    valid actions after each step, which takes ten times as long as the step itself.

    Raises:
        MissingDependency: the package is not installed.
        UsageError: there is no Java.
        ResourceError: Java does not start.
    """

    def __init__(self) -> None:
        try:
            from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
            from scienceworld.constants import BASEPATH, JAR_PATH
        except ImportError as error:
            raise MissingDependency("scienceworld", "the environment 'scienceworld'", "scienceworld>=1.2.3") from error
        # It raises what it logs, but for its finalizers: their tracebacks would be formatted in the middle of anything.
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        # The quick compiler alone: no slower over an episode, and 30 MiB less.
        limits = (f"-Xmx{HEAP}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
        classes = os.pathsep.join((find_jar_path(), JAR_PATH))
        options = ("--die-on-broken-pipe", "--enable-auth", "0")
        self._process = subprocess.Popen(
            [find_java(), *limits, "-classpath", classes, "py4j.GatewayServer", *options],
            stdin=subprocess.PIPE,  # its end of file, when this process is gone, ends the simulator
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=BASEPATH,
        )
        self._said: deque[bytes] = deque(maxlen=20)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [_drain(self._process.stderr, self._said)]
        try:
            port, token = int(self._process.stdout.readline()), self._process.stdout.readline().decode().strip()
        except ValueError as error:
            self._process.wait()
            self.close()
            raise ResourceError(f"the simulator did not start: {self._last_words()}") from error
        self._readers.append(_drain(self._process.stdout, deque(maxlen=0)))  # it talks to itself all the time
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        with self._asking():
            self._java: Any = self._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()

    @property
    def pid(self) -> int:
        """Of the Java process."""
        return self._process.pid

    def load(self, task: str, variation: int, simplifications: Sequence[str], *, gold: bool = False) -> None:
        """Begin a task anew.

        Args:
            gold: also find a way to solve it, which can take seconds.
        """
        with self._asking():
            self._java.load(task, variation, ",".join(simplifications), gold)

    def step(self, command: str) -> str:
        """Carry a command out and return what is seen of it."""
        with self._asking():
            return str(self._java.step(command))

    @property
    def score(self) -> float:
        """From 0 to 1, or negative after a failure that cannot be mended. Right only after a step."""
        with self._asking():
            return float(self._java.getScore())

    @property
    def completed(self) -> bool:
        """Whether the task is over, done or failed. Right only after a step."""
        with self._asking():
            return bool(self._java.getCompleted())

    def description(self) -> str:
        """The task, in words."""
        with self._asking():
            return str(self._java.getTaskDescription())

    def look(self) -> str:
        """The room; takes no time in the world."""
        with self._asking():
            return str(self._java.freeActionLook())

    def inventory(self) -> str:
        """What is carried; takes no time in the world."""
        with self._asking():
            return str(self._java.freeActionInventory())

    def commands(self) -> list[str]:
        """The forms of commands: ``open OBJ``."""
        with self._asking():
            return list(map(str, self._java.getPossibleActions()))

    def valid_actions(self) -> list[str]:
        """Every command that would do something now; some thousand."""
        with self._asking():
            return list(map(str, self._java.getValidActionObjectCombinations()))

    def gold_path(self) -> list[str]:
        """The commands that solve the task as loaded; empty unless it was loaded with ``gold``."""
        with self._asking():
            return list(map(str, self._java.getGoldActionSequence()))

    def close(self) -> None:
        """End the Java process; calling it twice does nothing."""
        if hasattr(self, "_gateway"):
            self._gateway.close()
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Errors of the simulator as errors that travel between processes."""
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            raise ResourceError(f"the simulator failed: {error.java_exception.toString()}") from error
        except (Py4JError, OSError) as error:
            raise ResourceError(
                f"the simulator is gone: {error or type(error).__name__}; {self._last_words()}"
            ) from error

    def _last_words(self) -> str:
        said = b"".join(self._said).decode(errors="replace").strip()
        code = self._process.poll()
        return f"exit code {code}" + (f", it last said: {said[-1000:]}" if said else "")


def find_java() -> str:
    """The Java to run: that of JAVA_HOME, or else the one on the PATH.

    Raises:
        UsageError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if java is None:
        where = f"there is none in JAVA_HOME ({home})" if home else "there is none on the PATH"
        raise UsageError(
            f"the environment 'scienceworld' needs Java, 8 or later, and {where}. "
            "Install it: apt install openjdk-17-jre-headless"
        )
    return java


def _drain(pipe: IO[bytes], into: deque[bytes]) -> threading.Thread:
    """Read a pipe to its end, so that its writer never waits; the last lines are kept."""
    thread = threading.Thread(target=lambda: into.extend(pipe), name="scienceworld-pipe", daemon=True)
    thread.start()
    return thread
