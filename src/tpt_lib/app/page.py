"""The page: three tabs, served on this machine. It keeps nothing between two clicks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpt_lib.app.bongard_tab import bongard_tab
from tpt_lib.app.choices import MAX_UPLOAD
from tpt_lib.app.image_tabs import add_inputs, compare_tab, explain_tab
from tpt_lib.app.show import CSS
from tpt_lib.app.wiring import require_gradio
from tpt_lib.app.words import NamedModel


def make_page(models: Mapping[str, NamedModel]) -> Any:
    """Return the page as Gradio's ``Blocks``.

    Args:
        models: the models that users may choose, by the name they see; the first is the default.
    """
    gr = require_gradio()
    with gr.Blocks(title="tpt_lib", analytics_enabled=False, delete_cache=(600, 1800), fill_width=True) as page:
        gr.Markdown(
            "# Test-time prompt tuning\nA prompt is tuned to one image, without labels. Uploads are deleted within an hour."
        )
        with gr.Row():
            with gr.Column(scale=1, min_width=300):
                parts = add_inputs(gr, models)
            with gr.Column(scale=3), gr.Tabs():
                with gr.Tab("One method", id="one"):
                    explain_tab(gr, models, parts)
                with gr.Tab("All methods", id="all"):
                    compare_tab(gr, models, parts)
                with gr.Tab("Bongard problem", id="bongard"):
                    bongard_tab(gr, models, parts["model"])
    return page.queue(max_size=32)


def serve(models: Mapping[str, NamedModel], *, host: str = "127.0.0.1", port: int | None = None) -> tuple[Any, str]:
    """Start to serve the page, in threads of this process.

    Nothing is sent to or loaded from the network: no telemetry, no public link, no fonts from elsewhere.

    Args:
        models: the models that users may choose, by the name they see.
        host: address to listen on (default the loopback address, which only this machine reaches).
        port: port (default None: the first free one from 7860).

    Returns:
        Gradio's ``Blocks``, which has ``block_thread()`` and ``close()``, and the address of the page.
    """
    gr = require_gradio()
    page = make_page(models)
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        share=False,
        prevent_thread_lock=True,
        quiet=True,
        max_file_size=MAX_UPLOAD,
        ssr_mode=False,
        enable_monitoring=False,
        run_history=False,
        footer_links=[],
        mcp_server=False,
        pwa=False,
        theme=gr.themes.Default(primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["monospace"]),
        css=CSS,
    )
    return page, address
