"""Work in a thread: its progress, its result, its errors, and that it stops."""

import threading

import pytest

from tpt_lib.app.stoppable import Progress, Stopped, run_stoppable


def drained(running):
    """What a generator yields and what it returns."""
    seen = []
    while True:
        try:
            seen.append(next(running))
        except StopIteration as end:
            return seen, end.value


def test_reports_and_the_result_come_through():
    def work(report):
        report(0.5, "half")
        return 7

    seen, result = drained(run_stoppable(work))
    assert result == 7
    assert [Progress(0.0, "starting"), Progress(0.5, "half")] == list(dict.fromkeys(seen))


def test_errors_come_through():
    def work(report):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        drained(run_stoppable(work))


def test_closing_stops_the_work_at_its_next_report():
    started, closed, ended = threading.Event(), threading.Event(), []

    def work(report):
        report(0.1, "first")
        started.set()
        closed.wait(10)
        try:
            report(0.2, "second")
        except Stopped:
            ended.append("stopped")
            raise
        finally:
            ended.append("done")

    running = run_stoppable(work)
    next(running)
    assert started.wait(10)
    running.close()
    closed.set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "work"]:
        thread.join(10)
    assert ended == ["stopped", "done"]


def test_progress_is_repeated_so_that_a_long_wait_can_be_closed():
    hold = threading.Event()
    running = run_stoppable(lambda report: hold.wait(10))
    assert [next(running) for _ in range(3)] == [Progress(0.0, "starting")] * 3
    running.close()
    hold.set()
