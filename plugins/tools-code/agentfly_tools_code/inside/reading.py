"""What can be known of tests by reading them: what they define and use, and what of them is a test."""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
from collections.abc import Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Broken(Exception):
    """The tests are at fault: nothing can be said of the code under test."""


class Source:
    """The texts of the tests.

    Attributes:
        trees: one a text.
        functions: names of functions that stand at the top, or under an ``if`` or the like there.
        used: every name that is read somewhere. bound: every name that something gives a value.
    """

    def __init__(self, texts: list[str]) -> None:
        self.trees = [_parse(text, f"<tests {i}>") for i, text in enumerate(texts, 1)]
        self._texts = texts
        nodes = [node for tree in self.trees for node in ast.walk(tree)]
        names = [node for node in nodes if isinstance(node, ast.Name)]
        self.functions = {n.name for tree in self.trees for n in _top(tree.body) if isinstance(n, _FUNCTIONS)}
        self.used = {n.id for n in names if isinstance(n.ctx, ast.Load)}
        self.bound = {n.id for n in names if not isinstance(n.ctx, ast.Load)}
        self.bound |= {n.name for n in nodes if isinstance(n, (*_FUNCTIONS, ast.ClassDef))}

    def is_test(self, node: ast.stmt) -> bool:
        """Whether a statement at the top asserts something, itself or by calling a function of the tests."""
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            return False
        return any(
            isinstance(part, ast.Assert) or (isinstance(part, ast.Expr) and self._calls_own(part))
            for part in _inside(node)
        )

    def count(self, entry: str | None) -> int:
        """How many tests it looks like: what is known where they break off."""
        total = 0
        for tree in self.trees:
            total += sum(self.is_test(statement) for statement in tree.body)
            for node in _top(tree.body):
                if isinstance(node, _FUNCTIONS):
                    total += node.name.startswith("test") or (entry is not None and node.name == "check")
                elif isinstance(node, ast.ClassDef):
                    total += sum(isinstance(n, _FUNCTIONS) and n.name.startswith("test") for n in node.body)
        return total

    def free_names(self) -> set[str]:
        """Names that the tests use and neither define nor import, and that are no builtins."""
        used: set[str] = set()
        bound: set[str] = set(dir(builtins)) | {"__name__", "__file__"}
        for text in self._texts:
            waiting = [symtable.symtable(text, "<tests>", "exec")]
            top = waiting[0]
            bound |= {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
            while waiting:
                table = waiting.pop()
                waiting += table.get_children()
                own = {
                    s.get_name() for s in table.get_symbols() if s.is_referenced() and (table is top or s.is_global())
                }
                used |= own
        return used - bound

    def is_module(self, name: str) -> bool:
        """Whether a free name is a module of the standard library that the tests forgot to import.

        They use nothing but its attributes. The code under test may have a function of that name, ``select`` say, but
        it must not get to say what ``math.isclose`` finds.
        """
        if name not in sys.stdlib_module_names:
            return False
        nodes = [node for tree in self.trees for node in ast.walk(tree)]
        uses = sum(isinstance(node, ast.Name) and node.id == name for node in nodes)
        return uses == sum(
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
            for node in nodes
        )

    def _calls_own(self, node: ast.AST) -> bool:
        calls = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
        return any(isinstance(called, ast.Name) and called.id in self.functions for called in calls)


def is_main_guard(node: ast.stmt) -> bool:
    """Whether it is ``if __name__ == "__main__":``."""
    if not (isinstance(node, ast.If) and isinstance(node.test, ast.Compare)):
        return False
    return any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))


def _parse(text: str, name: str) -> ast.Module:
    try:
        return ast.parse(text, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Broken(f"{type(error).__name__}: {error}") from None


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the text does, those inside of others included."""
    for statement in body:
        yield statement
        if not isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            for part in ast.iter_child_nodes(statement):
                inner = [part] if isinstance(part, ast.stmt) else getattr(part, "body", None)
                yield from _top(inner if isinstance(inner, list) else [])


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """It and its parts, without the bodies of functions and classes."""
    yield node
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield from _inside(part)
