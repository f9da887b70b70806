"""Files of refiners: weights, details and, if there is one, a guarantee."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import as_file, files
from typing import Any

from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike
from locpmap.formats.model_file import read_model, write_model
from locpmap.guarantees import Guarantee
from locpmap.guarantees.guarantee import VERSION
from locpmap.refining.examples import Example
from locpmap.refining.fitting_samples import START, SampleWeights
from locpmap.refining.model import AS_LEARNED
from locpmap.refining.weights import Adjustment, Weights

SHIPPED = "bundled.safetensors"
KIND = "refiner"
PREFIX = "guarantee: "  # of the names of a guarantee's arrays
ADJUSTED, VOLUMES = "adjusted", "volumes"  # keys of details: the adjustment, and whether it was fitted on volumes
IN_EVERY_FILE = ("strides", "scales", "own", "guided", "pairwise", "typical")  # later ones are optional

Saved = tuple[Weights, dict[str, Any], Adjustment, Guarantee | None]


def write_refiner(
    path: PathLike, weights: Weights, details: dict[str, Any], adjustment: Adjustment, guarantee: Guarantee | None
) -> None:
    """Write a refiner to a file, atomically."""
    if adjustment != AS_LEARNED:
        details = {**details, ADJUSTED: asdict(adjustment)}
    arrays = {name: getattr(weights, name) for name in weights.__dataclass_fields__}
    header: dict[str, Any] = {"kind": KIND, "details": details}
    if guarantee is not None:
        arrays |= {PREFIX + name: array for name, array in guarantee.arrays().items()}
        header["guarantee"] = VERSION
    write_model(path, arrays, header)


def read_refiner(path: PathLike) -> Saved:
    """Read weights, details, adjustment and guarantee from a file that `write_refiner` wrote."""
    arrays, header = read_model(path)
    if header.get("kind") != KIND:
        raise InputError(f"{path} holds a {header.get('kind')!r}, expected a {KIND!r}")
    promised = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
    own = {name: array for name, array in arrays.items() if not name.startswith(PREFIX)}
    try:
        if not isinstance(header["details"], dict):
            raise InputError("it has no details")
        if missing := [name for name in IN_EVERY_FILE if name not in own]:
            raise InputError(f"it has no {missing[0]}")
        if (version := header.get("guarantee", VERSION)) != VERSION:
            raise InputError(f"its guarantee has version {version}, expected {VERSION}")
        weights, details = Weights(**own), header["details"]
        adjustment = Adjustment(**details.pop(ADJUSTED, {}))
        guarantee = Guarantee.of_arrays(promised, weights.identity(adjustment)) if promised else None
    except (KeyError, TypeError, InputError) as error:
        raise InputError(f"{path} is not a refiner of this version: it is malformed ({error})") from None
    return weights, details, adjustment, guarantee


@cache
def bundled() -> Saved:
    """Read the refiner that is part of the package."""
    with as_file(files("locpmap.refining") / SHIPPED) as path:
        return read_refiner(path)


def bundled_prior(examples: Sequence[Example]) -> SampleWeights:
    """Return the bundled weights of samples at the stride of the examples."""
    weights = bundled()[0]
    return SampleWeights.at(weights, examples[0].stride) if weights.sizes.any() else START
