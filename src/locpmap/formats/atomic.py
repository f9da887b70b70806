"""Files that are either written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from locpmap.errors import InputError

PathLike = str | os.PathLike[str]


def write_text(path: PathLike, pieces: Iterable[str]) -> None:
    """Write to a file beside the target and put it in the target's place when it is complete.

    What cannot be replaced (a device, a pipe) is written to directly.
    """
    target = checked_target(path)
    if target.exists() and not target.is_file():
        with target.open("w", encoding="ascii") as file:
            file.writelines(pieces)
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="ascii") as file:
            file.writelines(pieces)
        draft.replace(target)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)


def checked_target(path: PathLike, *inputs: PathLike | None) -> Path:
    """The file that a path stands for, refused where it cannot be written or is one of the inputs."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"{path} is a directory, expected a file to write to")
    if not target.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {target.parent}")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: permission denied")
    if target.exists() and any(
        other is not None and Path(other).exists() and target.samefile(other) for other in inputs
    ):
        raise InputError(f"{path} is also read from, expected another file to write to")
    return target
