"""Read the names of labels."""

from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike, checked_path
from locpmap.formats.readable import reading, size_of

EXPECTED = "a text file with one label name per line"
MAX_BYTES = 2**20


def read_names(path: PathLike) -> tuple[str, ...]:
    r"""Read the names of labels 0, 1, 2, .. from a text file with one name per line.

    Args:
        path (str or os.PathLike): A text file in UTF-8.

    Returns:
        tuple of str: The names.

    Raises:
        InputError: If the file cannot be read, is not text, or has an empty line before its end.

    Example:
        >>> import tempfile
        >>> from locpmap.formats import read_names
        >>> with tempfile.NamedTemporaryFile("w") as file:
        ...     _ = file.write("sky\ntree\n")
        ...     file.flush()
        ...     read_names(file.name)
        ('sky', 'tree')
    """
    if (size := size_of(path, EXPECTED)) > MAX_BYTES:
        raise InputError(f"{path} has {size} bytes, expected {EXPECTED}, at most {MAX_BYTES} bytes")
    with reading(path, EXPECTED):
        content = checked_path(path).read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file in UTF-8, expected {EXPECTED}") from None
    names = [line.strip() for line in text.rstrip().splitlines()]
    for number, name in enumerate(names, start=1):
        if not name or not name.isprintable():
            raise InputError(f"{path}, line {number}, is {name!r}, expected the name of label {number - 1}")
    if not names:
        raise InputError(f"{path} is empty, expected {EXPECTED}")
    return tuple(names)
