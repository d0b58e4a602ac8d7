"""Objects that the tests start in workers and in this process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import types


class Custom(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code

    def __reduce__(self):
        return Custom, (self.code,)


class Awkward(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__("awkward")


class Thing:
    """Counts, misbehaves, and can be reset."""

    def __init__(
        self, start: int = 0, log: str = "", slow_start: float = 0.0, loud: str = "", fail: bool = False
    ) -> None:
        time.sleep(slow_start)
        if loud:
            print(loud)
            os.system(f"echo {loud}")
        if fail:
            raise ValueError("no such world")
        self.first = self.value = start
        self.log = log

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    async def add_later(self, amount: int, delay: float = 0.0) -> int:
        await asyncio.sleep(delay)
        return self.add(amount)

    def reset(self) -> None:
        self.value = self.first

    def close(self) -> None:
        if self.log:
            with open(self.log, "a") as file:
                file.write(f"closed {self.value}\n")

    def hang(self, seconds: float = 60.0) -> None:
        time.sleep(seconds)

    def block_until(self, path: str) -> None:
        while not os.path.exists(path):
            time.sleep(0.01)

    def whereabouts(self) -> tuple[int, int]:
        return os.getpid(), threading.get_ident()

    def modules(self) -> list[str]:
        return sorted(sys.modules)

    def die(self) -> None:
        print("about to die", file=sys.stderr, flush=True)
        os._exit(7)

    def fail_value(self) -> None:
        raise ValueError("not a good value")

    def fail_custom(self) -> None:
        raise Custom(3)

    def fail_foreign(self) -> None:
        module = types.ModuleType("exists_only_here")
        exec("class Foreign(Exception): pass", module.__dict__)
        sys.modules["exists_only_here"] = module
        raise module.Foreign("from afar")

    def fail_awkward(self) -> None:
        raise Awkward(1, 2)

    def leave(self) -> None:
        sys.exit(4)

    def out_of_time(self) -> None:
        raise TimeoutError("its own")

    def unpicklable(self):
        return (i for i in range(3))

    def echo(self, value):
        return value

    def read_stdin(self) -> str:
        return sys.stdin.read()

    def spawn_child(self) -> int:
        return subprocess.Popen(["sleep", "100"]).pid

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def _private(self) -> int:
        return 1


class Stubborn(Thing):
    def reset(self) -> bool:
        return False


class World:
    """Like an environment: its reset takes arguments."""

    def reset(self, task: str, seed: int) -> str:
        return f"{task} {seed}"


class Plain:
    def ping(self) -> str:
        return "pong"


not_callable = 3
