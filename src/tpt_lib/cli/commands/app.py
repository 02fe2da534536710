"""``tpt-lib app``: serve the browser app."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tpt_lib.cli.loading import named_models_of
from tpt_lib.cli.options import add_device, refuse
from tpt_lib.cli.output import say
from tpt_lib.features.store import FeatureStore
from tpt_lib.plots.figure import require_matplotlib

ABOUT = "Run a browser app to try methods on your own images, or on the samples of a store"
EXAMPLES = ("", "--models tiny ViT-B-16:openai --port 8000", "--store drawings")


def add_options(command: ArgumentParser) -> None:
    """Add the options of this command."""
    command.add_argument(
        "--models",
        nargs="+",
        default=["tiny"],
        metavar="MODEL[:TAG]",
        help="models to choose from: 'tiny', the embedded one (default); an open_clip architecture with its weights such as "
        "'ViT-B-16:openai'; or the folder of a transformers model. No other model is ever loaded",
    )
    command.add_argument(
        "--store",
        metavar="FOLDER",
        help="a feature store of one of the models; the app then offers its samples as well as images",
    )
    add_device(command)
    command.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1, which only this machine reaches)"
    )
    command.add_argument("--port", type=int, help="port (default: the first free one from 7860)")


def run(args: Namespace) -> int:
    """Load the models and serve the app until it is stopped."""
    from tpt_lib.app.page import serve
    from tpt_lib.app.wiring import require_gradio
    from tpt_lib.app.words import named_model

    refuse(args, ("json",), "the app prints no result; leave it out")
    require_gradio()
    require_matplotlib()
    store = None if args.store is None else FeatureStore.open(args.store)
    named = {name: named_model(model, code) for name, (model, code) in named_models_of(args).items()}
    if args.host not in ("127.0.0.1", "localhost", "::1"):
        say(f"warning: everyone who can reach {args.host} can use this app; there is no password")
    page, address = serve(named, store=store, host=args.host, port=args.port)
    print(f"The app is at {address} until you press Ctrl-C", flush=True)
    page.block_thread()
    return 0
