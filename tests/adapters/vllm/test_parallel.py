"""Processes that search: results in any number of them, and what becomes of one that dies, hangs, fails or is interrupted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from vllm_lifecycle.adapters.vllm.config import Unusable
from vllm_lifecycle.adapters.vllm.parallel import Failed, Lost, Pool, Tell, can_fork, default_jobs

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system does not fork processes")
Task = Callable[[Tell, float], str]


def _pool(
    tasks: Sequence[Task], jobs: int = 2, silence: float = 30.0, last: str = ""
) -> dict[int, str | Lost]:
    lines: list[str] = []
    pool = Pool[str](jobs, lines.append, silence)
    return dict(pool.run(tasks, lambda place, busy: 0.0, lambda result: result == last))


def _plain(name: str, tell: Tell, seconds: float) -> str:
    tell(f"{name} begins")
    return name


def _dies(tell: Tell, seconds: float) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def _leaves(tell: Tell, seconds: float) -> str:
    os._exit(7)


def _hangs(tell: Tell, seconds: float) -> str:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def _refuses(tell: Tell, seconds: float) -> str:
    raise Unusable("one line")


def _breaks(tell: Tell, seconds: float) -> str:
    raise KeyError("of ours")


def _waits(tell: Tell, seconds: float, first: str = "") -> str:
    try:
        if first:
            tell(first)
        time.sleep(60)
    except KeyboardInterrupt:
        return "what was found so far"
    return "too late"


def _tells(tell: Tell, seconds: float) -> str:
    return _waits(tell, seconds, "ready")


def test_every_task_has_its_result() -> None:
    tasks = [partial(_plain, str(i)) for i in range(5)]
    assert _pool(tasks) == {i: str(i) for i in range(5)}


@pytest.mark.parametrize(("task", "word"), [(_dies, "SIGKILL"), (_leaves, "exit code 7")])
def test_a_process_that_dies_takes_only_its_own_task_along(task: Task, word: str) -> None:
    found = _pool([partial(_plain, "a"), task, partial(_plain, "b")])
    assert found[0] == "a" and found[2] == "b"
    lost = found[1]
    assert isinstance(lost, Lost) and word in lost.reason and "\n" not in lost.reason


def test_a_process_that_gives_no_sign_of_life_is_ended() -> None:
    found = _pool([_hangs, partial(_plain, "a")], silence=1.0)
    assert found[1] == "a"
    lost = found[0]
    assert isinstance(lost, Lost) and "no sign of life for 1 s" in lost.reason


def test_an_error_with_a_repair_stays_one_line_and_one_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(Unusable, match=r"^one line$"):
        _pool([_refuses])
    with pytest.raises(Failed, match=r"Traceback(.|\n)*KeyError"):
        _pool([_breaks])


def test_after_the_last_result_nothing_further_begins() -> None:
    tasks = [partial(_plain, str(i)) for i in range(5)]
    assert _pool(tasks, jobs=1, last="1") == {0: "0", 1: "1"}


def test_ctrl_c_lets_every_process_hand_in_what_it_has() -> None:
    def heard(line: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    pool = Pool[str](2, heard)
    tasks: list[Task] = [_waits, _tells, partial(_plain, "never begun")]
    found = dict(pool.run(tasks, lambda place, busy: 60.0, lambda result: False))
    assert found == {0: "what was found so far", 1: "what was found so far"}


def test_no_more_processes_than_processors() -> None:
    assert 1 <= default_jobs() <= 2
