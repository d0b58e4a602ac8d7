"""The file tools: what they do, and that nothing leads out of the workspace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentfly_tools_code.files import (
    EditFile,
    ReadFile,
    WriteFile,
    edit_file,
    list_files,
    read_file,
    search_files,
    write_file,
)
from agentfly_tools_code.inside.files import MAX_BYTES, Folder, Refused, answer
from agentfly_tools_code.shell import Shell, shell
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.resources.sandboxes import ProcessProvider
from agentfly_core.testing import call
from agentfly_core.types import ToolStatus, text_of

TOOLS = [read_file, write_file, edit_file, list_files, search_files, shell]
LAY_OUT = "mkdir d; printf 'one\\ntwo\\n' > d/n.txt; printf 'two\\0' > bin; echo two > m.py; ln -s m.py l"
LINKS = "ln -s /etc up; ln -s / d; ln -s ../../etc/passwd p; mkdir in; ln -s ../up in/deep; ln -s /tmp/new n"
ODD = "mkdir d; mkfifo f; printf 'a\\0b' > bin; head -c 3000000 /dev/zero > big; printf '\\377' > odd"
Steps = Callable[..., list[str]]


@pytest.fixture
def steps(chain: Any) -> Steps:
    """What the model is shown after each call of one chain, each given as (tool, arguments)."""

    def run(*calls: tuple[str, dict[str, Any]]) -> list[str]:
        return [text_of(o.content) for o in chain(*(call(name, **args) for name, args in calls), tools=TOOLS)]

    return run


def test_write_read_edit_and_undo(steps: Steps) -> None:
    assert steps(
        ("write_file", {"path": "a/b.py", "content": "x = 1\ny = 2\nx = 1\n"}),
        ("read_file", {"path": "a/b.py"}),
        ("read_file", {"path": "a/b.py", "start_line": 2, "end_line": 2}),
        ("edit_file", {"path": "a/b.py", "old": "x = 1", "new": "x = 3"}),
        ("edit_file", {"path": "a/b.py", "old": "y = 2\n", "new": ""}),
        ("edit_file", {"path": "a/b.py", "old": "x = 1", "new": "x = 3", "all": True}),
        ("read_file", {"path": "a/b.py"}),
        ("edit_file", {"path": "a/b.py", "undo": True}),
        ("edit_file", {"path": "a/b.py", "undo": True}),
        ("read_file", {"path": "a/b.py"}),
        ("edit_file", {"path": "a/b.py", "undo": True}),
        ("read_file", {"path": "a/b.py"}),
        ("edit_file", {"path": "a/b.py", "undo": True}),
    ) == [
        "[wrote a/b.py: 18 bytes]",
        "x = 1\ny = 2\nx = 1\n",
        "y = 2\n",
        "Error: the text to replace occurs 2 times in a/b.py; give more of what is around it",
        "[replaced in line 2 of a/b.py]",
        "[replaced 2 times in a/b.py]",
        "x = 3\nx = 3\n",
        "[took back the last change of a/b.py]",
        "[took back the last change of a/b.py]",
        "x = 1\ny = 2\nx = 1\n",
        "[removed a/b.py again]",
        "Error: No such file or directory",
        "Error: there is no change of a/b.py to take back",
    ]


FILL = "head -c 8000000 /dev/zero > fill; wc -c < old; ls -A"


def test_a_change_that_finds_the_disk_full_changes_nothing(chain: Any) -> None:
    if ProcessProvider().report().disk != "sized":
        pytest.skip("here only each file is limited")
    made = {"sandbox": {"disk": 4}}
    tools = [Shell(**made), WriteFile(**made), EditFile(**made), ReadFile(**made)]
    calls = [
        ("write_file", {"path": "old", "content": "first\n"}),
        ("edit_file", {"path": "old", "old": "first", "new": "second"}),
        ("shell", {"command": FILL}),
        ("write_file", {"path": "old", "content": "third\n" * 9000}),
        ("edit_file", {"path": "old", "old": "second", "new": "third" * 9000}),
        ("write_file", {"path": "new", "content": "third\n" * 9000}),
        ("shell", {"command": "cat old; ls -A; rm fill"}),
        ("edit_file", {"path": "old", "undo": True}),
        ("read_file", {"path": "old"}),
    ]
    shown = [text_of(o.content) for o in chain(*(call(name, **given) for name, given in calls), tools=tools)]
    assert shown[2].splitlines()[-3:] == ["7", "fill", "old"]
    assert shown[3:6] == ["Error: No space left on device"] * 3
    assert shown[6] == "second\nfill\nold"
    assert shown[7:] == ["[took back the last change of old]", "first\n"]


def test_a_change_keeps_the_mode_and_follows_links(steps: Steps) -> None:
    *_, shown = steps(
        ("shell", {"command": "echo a > run; chmod 750 run; ln -s run link; echo a > shut; chmod 444 shut"}),
        ("edit_file", {"path": "link", "old": "a", "new": "b"}),
        ("write_file", {"path": "shut", "content": "b"}),
        ("write_file", {"path": "d/plain", "content": "b"}),
        ("shell", {"command": "stat -c '%a %F %n' run link d/plain shut; cat run shut"}),
    )
    assert (
        shown == "750 regular file run\n777 symbolic link link\n644 regular file d/plain\n444 regular file shut\nb\na"
    )


def test_list_and_search(steps: Steps) -> None:
    listed, below, found, none, few = steps(
        ("shell", {"command": LAY_OUT}),
        ("list_files", {"recursive": True}),
        ("search_files", {"pattern": "^t.o$"}),
        ("search_files", {"pattern": "two", "names": "*.md"}),
        ("search_files", {"pattern": ".", "limit": 1}),
    )
    assert listed == "[no output]"
    assert below == "bin 4\nd/\nd/n.txt 8\nl@ 4\nm.py 4"
    assert found == "d/n.txt:2: two\nm.py:1: two"
    assert none == "[nothing found]"
    assert few == "d/n.txt:1: one\n[only the first 1 are shown]"


def test_nothing_leads_out(steps: Steps) -> None:
    shown = steps(
        ("shell", {"command": LINKS}),
        *(("read_file", {"path": path}) for path in ("/etc/passwd", "../etc/passwd", "up/passwd", "d/etc/passwd", "p")),
        *(("read_file", {"path": path}) for path in ("in/deep/passwd", "in/../../etc/passwd", "/proc/self/environ")),
        ("write_file", {"path": "up/x", "content": "x"}),
        ("write_file", {"path": "n", "content": "x"}),
        ("write_file", {"path": "../x", "content": "x"}),
        ("edit_file", {"path": "p", "old": "root", "new": "x"}),
        ("list_files", {"path": "up"}),
        ("list_files", {"path": ".."}),
        ("search_files", {"pattern": "root", "path": "d"}),
    )
    assert shown[0] == "[no output]"
    assert [one for one in shown[1:] if " lies outside of the workspace " not in one] == []


def test_what_is_no_text_file_is_refused(steps: Steps) -> None:
    _, *shown = steps(
        ("shell", {"command": ODD}),
        ("read_file", {"path": "d"}),
        ("read_file", {"path": "f"}),
        ("read_file", {"path": "bin"}),
        ("read_file", {"path": "big"}),
        ("read_file", {"path": "none"}),
        ("read_file", {"path": ""}),
        ("read_file", {"path": "a\0b"}),
        ("edit_file", {"path": "odd", "old": "a", "new": "b"}),
        ("write_file", {"path": "f", "content": "x"}),
        ("write_file", {"path": ".", "content": "x"}),
        ("edit_file", {"path": "bin", "old": "", "new": "b"}),
        ("read_file", {"path": "bin", "start_line": 9}),
    )
    assert [one.removeprefix("Error: ") for one in shown] == [
        "d is a folder",
        "f is no regular file",
        "bin is a binary file of 3 bytes",
        f"big has 3000000 bytes; at most {MAX_BYTES} can be read",
        "No such file or directory",
        " is a folder",
        "a path cannot contain a null character",
        "odd is not UTF-8 text; it cannot be edited",
        "f is no regular file",
        ". is a folder",
        "`old` is empty: give the text to replace",
        "bin is a binary file of 3 bytes",
    ]


def test_a_pattern_without_end_is_stopped(chain: Any) -> None:
    slow = search_files.configured(timeout=5.0)  # type: ignore[misc]
    outcomes = chain(
        call("write_file", path="a", content="a" * 40 + "b"),
        call("search_files", pattern="(a+)+$"),
        call("search_files", pattern="b$"),
        tools=[write_file, slow],
    )
    assert text_of(outcomes[1].content) == "Error: it took longer than 5 s"
    assert outcomes[1].status is ToolStatus.FAILED
    assert text_of(outcomes[2].content).startswith("a:1: aaaa")


def test_a_link_put_in_the_way_between_look_and_step_is_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "d").mkdir(parents=True)
    outside.mkdir()
    (outside / "f").write_text("secret")

    class Raced(Folder):
        def resolve(self, path: str) -> list[str]:
            names = super().resolve(path)
            (inside / "d").rmdir()
            (inside / "d").symlink_to(outside)
            return names

    with pytest.raises(NotADirectoryError):
        Raced(str(inside)).read("d/f")


@settings(max_examples=60, deadline=None)
@given(path=st.text(alphabet="ab/.\0 ~", max_size=12))
def test_every_path_is_inside_or_refused(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    root = tmp_path_factory.getbasetemp() / "confined"
    root.mkdir(exist_ok=True)
    folder = Folder(str(root))
    try:
        names = folder.resolve(path)
    except Refused:
        return
    assert ".." not in names
    assert (root / Path(*names)).resolve().is_relative_to(root.resolve()) if names else True


@settings(max_examples=60, deadline=None)
@given(
    old=st.text(alphabet="ab\n", min_size=1, max_size=3), text=st.text(alphabet="ab\n", max_size=12), new=st.text("xy")
)
def test_an_edit_is_a_replacement_and_restoring_takes_it_back(
    tmp_path_factory: pytest.TempPathFactory, old: str, text: str, new: str
) -> None:
    root = tmp_path_factory.getbasetemp() / "edited"
    root.mkdir(exist_ok=True)
    file = root / "f"
    file.write_bytes(text.encode())
    folder = Folder(str(root))
    done = answer(folder, {"do": "edit", "path": "f", "old": old, "new": new, "every": True})
    assert file.read_bytes().decode() == text.replace(old, new)
    assert ("error" in done) == (old not in text)
    if "error" not in done:
        answer(folder, {"do": "restore", "path": "f", "data": done["before"]})
        assert file.read_bytes().decode() == text
