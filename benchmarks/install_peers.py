"""Install locpmap and the systems it is compared with; print and skip those that cannot be installed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Each system with its pip arguments. PGMax's declared dependencies are only needed for its notebooks and tests.
PEERS = {
    "pydensecrf2": [["pydensecrf2==1.1"]],
    "PyMaxflow": [["PyMaxflow"]],
    "gco": [["gco-wrapper==3.0.9"]],
    "torch": [["torch"]],
    "PGMax": [["jax==0.10.2"], ["--no-deps", "pgmax==0.6.1"]],
}


def main() -> None:
    """Install everything; exit with an error only if locpmap itself fails."""
    failure = _pip(["--editable", f"{ROOT}[estimators]", "--editable", str(ROOT / "paper")])
    if failure:
        sys.exit(f"locpmap does not install: {failure}")
    for peer, commands in PEERS.items():
        failure = next(filter(None, map(_pip, commands)), None)
        if failure:
            print(f"skipped: {peer} cannot be installed ({failure})")


def _pip(arguments: list[str]) -> str | None:
    """Run pip install; return None, or the last line of the error."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--constraint", str(ROOT / "constraints.txt"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return (lines or ["pip gave no reason"])[-1] if done.returncode else None


if __name__ == "__main__":
    main()
