"""Check the types of the README's Python and of examples/*.py as a user's editor does: ``python scripts/examples.py``.

Runs pyright in basic mode on copies of them, with the package's own types.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def sources() -> dict[str, str]:
    """What users read and copy: the name of each file, and its code."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.M | re.S)
    found = {f"readme_{i}.py": code for i, code in enumerate(blocks)}
    return found | {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.py"))}


def check(files: dict[str, str]) -> tuple[int, str]:
    """Return the exit code of pyright on these files, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        for name, code in files.items():
            Path(folder, name).write_text(code, encoding="utf-8")
        settings = {"typeCheckingMode": "basic", "extraPaths": [str(ROOT / "src")]}
        Path(folder, "pyrightconfig.json").write_text(json.dumps(settings))
        command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).replace(f"{folder}/", "")


if __name__ == "__main__":
    code, said = check(sources())
    print(said, end="")
    sys.exit(code)
