"""The commands of ``tpt-lib``, one module per command.

Each module has ``ABOUT`` and ``EXAMPLES`` for ``--help``, ``add_options(parser)``, and ``run(args)``, which returns the exit
code.
"""

from types import ModuleType

from tpt_lib.cli.commands import (
    app,
    classify,
    compare,
    datasets,
    demo,
    encode,
    evaluate,
    methods,
    models,
    report,
    reproduce,
    store,
)

__all__ = ["COMMANDS"]

COMMANDS: dict[str, ModuleType] = {  # in the order of --help
    "demo": demo,
    "classify": classify,
    "app": app,
    "evaluate": evaluate,
    "encode": encode,
    "store": store,
    "compare": compare,
    "report": report,
    "reproduce": reproduce,
    "datasets": datasets,
    "methods": methods,
    "models": models,
}
