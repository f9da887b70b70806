"""Install locpmap and, one by one, the systems it is compared with; one that fails is named and left out."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Each peer with its pip arguments. PGMax comes without its dependencies, which are those of its notebooks and tests.
PEERS = {
    "pydensecrf2": [["pydensecrf2==1.1"]],
    "PyMaxflow": [["PyMaxflow"]],
    "gco": [["gco-wrapper==3.0.9"]],
    "torch": [["torch"]],
    "PGMax": [["jax==0.10.2"], ["--no-deps", "pgmax==0.6.1"]],
}


def main() -> None:
    """Install everything; only locpmap itself must succeed."""
    failure = _pip(["--editable", f"{ROOT}[estimators]", "--editable", str(ROOT / "paper")])
    if failure:
        sys.exit(f"locpmap does not install: {failure}")
    for peer, commands in PEERS.items():
        failure = next(filter(None, map(_pip, commands)), None)
        if failure:
            print(f"left out: {peer} does not install here ({failure})")


def _pip(arguments: list[str]) -> str | None:
    """None, or the last line of what went wrong."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--constraint", str(ROOT / "constraints.txt"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return (lines or ["pip gave no reason"])[-1] if done.returncode else None


if __name__ == "__main__":
    main()
