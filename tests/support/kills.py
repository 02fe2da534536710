"""Evaluations in forked processes that are killed at random moments."""

import os
import random
import signal
import time

from support.noise_runs import lines_of


def killed(path, evaluate, lines, more, delay):
    """Evaluate in a forked process, and kill it a moment after so many more of its lines have been written."""
    wanted = lines_of(path) + more
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        evaluate()
        os._exit(0)
    deadline = time.monotonic() + 30
    while lines_of(path) < min(wanted, lines) and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def killed_thirty_times(path, evaluate, lines, choices=(0, 1, 1, 2), seed=0):
    """Kill an evaluation thirty times at random moments, and check that each kill loses at most the line in flight."""
    chance = random.Random(seed)
    seen = [0]
    for _ in range(30):
        killed(path, evaluate, lines, chance.choice(choices), chance.uniform(0, 0.03))
        seen.append(lines_of(path))
        assert seen[-1] >= seen[-2] - 1
    assert len({n for n in seen if 1 < n < lines}) > 5, seen
