"""Build the page of three tabs, and serve it on this machine. It keeps nothing between two clicks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpt_lib.app.bongard_tab import bongard_tab
from tpt_lib.app.choices import MAX_UPLOAD
from tpt_lib.app.image_tabs import add_inputs, compare_tab, explain_tab
from tpt_lib.app.show import CSS
from tpt_lib.app.stored import compare_with_models
from tpt_lib.app.wiring import require_gradio
from tpt_lib.app.words import NamedModel
from tpt_lib.features.store import FeatureStore


def make_page(models: Mapping[str, NamedModel], *, store: FeatureStore | None = None) -> Any:
    """Return the page as Gradio's ``Blocks``.

    Args:
        models: the models that users may choose, by the name they see; the first is the default.
        store: a store whose samples users may choose in place of images (default None).

    Raises:
        ValueError: if the store has features of none of the models.
    """
    gr = require_gradio()
    served = None if store is None else compare_with_models(store, models)
    with gr.Blocks(title="tpt_lib", analytics_enabled=False, delete_cache=(600, 1800), fill_width=True) as page:
        gr.Markdown(
            "# Test-time prompt tuning\nA prompt is tuned to one image, without labels. Uploads are deleted within an hour."
        )
        with gr.Row():
            with gr.Column(scale=1, min_width=300):
                parts = add_inputs(gr, models, served)
            with gr.Column(scale=3), gr.Tabs():
                with gr.Tab("One method", id="one"):
                    explain_tab(gr, models, parts, served)
                with gr.Tab("All methods", id="all"):
                    compare_tab(gr, models, parts, served)
                with gr.Tab("Bongard problem", id="bongard"):
                    bongard_tab(gr, models, parts["model"])
    return page.queue(max_size=32)


def serve(
    models: Mapping[str, NamedModel],
    *,
    store: FeatureStore | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
) -> tuple[Any, str]:
    """Serve the page from threads of this process.

    Nothing is sent to or loaded from the network: no telemetry, no public link, no fonts from elsewhere.

    Args:
        models: the models that users may choose, by the name they see.
        store: a store whose samples users may choose in place of images (default None).
        host: address to listen on (default the loopback address, which only this machine reaches).
        port: port (default None: the first free one from 7860).

    Returns:
        Gradio's ``Blocks``, which has ``block_thread()`` and ``close()``, and the address of the page.
    """
    gr = require_gradio()
    page = make_page(models, store=store)
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
