"""Add what the tabs share: buttons, and work that has a progress bar and can be stopped."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from typing import Any

from tpt_lib.app.show import progress_bar
from tpt_lib.app.stoppable import Report, run_stoppable

HIDDEN: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
WORK: dict[str, Any] = {"concurrency_id": "work", "concurrency_limit": 1, **HIDDEN}  # one user's work at a time


def require_gradio() -> Any:
    """Return Gradio, or raise an ImportError that says what to install."""
    try:
        import gradio
    except ImportError as error:
        raise ImportError('the browser app needs Gradio: pip install "tpt_lib[app]"') from error
    return gradio


def add_buttons(gr: Any, label: str) -> tuple[Any, Any, Any]:
    """Add a button that starts work, one that stops it, and where its progress is shown."""
    with gr.Row():
        run, stop = gr.Button(label, variant="primary"), gr.Button("Stop")
    return run, stop, gr.HTML()


def on_click(
    gr: Any, add: tuple[Any, Any, Any], work: Callable[..., Any], inputs: list[Any], outputs: list[Any]
) -> None:
    """Start ``work(report, *values of the inputs)`` when a user clicks; it returns the new values of the outputs."""
    run, stop, status = add

    def clicked(*values: Any) -> Iterator[dict[Any, Any]]:
        yield from watch(gr, status, lambda report: work(report, *values))

    running = run.click(clicked, inputs, [status, *outputs], **WORK)
    stop.click(None, cancels=[running])
    # Only work that was stopped leaves a progress bar. Gradio says so once it takes the next click, not before.
    running.failure(lambda left: left and "Stopped.", status, status, queue=False, **HIDDEN)


def watch(gr: Any, status: Any, work: Callable[[Report], dict[Any, Any]]) -> Iterator[dict[Any, Any]]:
    """Yield a progress bar until the work is done, then what it returned. Its errors become messages, which are HTML."""
    running = run_stoppable(work)
    try:
        while True:
            yield {status: progress_bar(next(running))}
    except StopIteration as end:
        yield {status: "", **end.value}
    except Exception as error:
        yield {status: ""}
        if not isinstance(error, ValueError | TypeError | OSError | ImportError):
            raise
        raise gr.Error(html.escape(str(error)), duration=None, print_exception=False) from error
    finally:
        running.close()
