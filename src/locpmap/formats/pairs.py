"""Match the images of a folder with a network's scores of the same name."""

from pathlib import Path
from typing import NamedTuple

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg")
SCORE_ENDINGS = (".npy", ".npz", ".safetensors")
NAMES_FILE = "names.txt"  # names of the labels, in the same folder
TRUTH_ENDING = ".truth.png"  # of true labels, which the viewer shows


class Pairs(NamedTuple):
    """Images with scores of the same name, and the images and scores that are not used."""

    found: dict[str, tuple[Path, Path]]
    unused: list[Path]


def find_pairs(folder: Path) -> Pairs:
    """Match the images of a folder with scores of the same name in the same folder.

    Of several images (or scores) of one name, the first in alphabetical order is used.  Hidden files, files with other
    endings or the ending .truth.png, and links to files outside the folder are skipped.

    Args:
        folder (Path): Folder with images (.png, .jpg, .jpeg) and scores (.npy, .npz, .safetensors).

    Returns:
        Pairs: ``found`` maps each name, in alphabetical order, to the paths of image and scores; ``unused`` lists the
        images and scores without a partner.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from locpmap.formats import find_pairs
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("cat.jpg", "cat.npy", "dog.png", "notes.txt"):
        ...         Path(folder, name).touch()
        ...     pairs = find_pairs(Path(folder))
        >>> list(pairs.found), [path.name for path in pairs.unused]
        (['cat'], ['dog.png'])
    """
    root = folder.resolve()
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in IMAGE_ENDINGS + SCORE_ENDINGS
        and not path.name.startswith(".")
        and not path.name.endswith(TRUTH_ENDING)
    ]
    by_name: dict[str, dict[str, Path]] = {}
    for path in files:
        if path.is_file() and path.resolve().is_relative_to(root):
            kind = "image" if path.suffix.lower() in IMAGE_ENDINGS else "scores"
            by_name.setdefault(path.stem, {}).setdefault(kind, path)
    found = {stem: (both["image"], both["scores"]) for stem, both in by_name.items() if len(both) == 2}
    used = {path for pair in found.values() for path in pair}
    return Pairs(found, [path for path in files if path not in used])
