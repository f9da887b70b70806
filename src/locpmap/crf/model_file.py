"""The model file of a CRF: its header, and the validation of files that are read."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from locpmap.arrays import Array
from locpmap.crf.calibration import Calibration
from locpmap.errors import InputError, LocpmapError
from locpmap.features import Features, GivenUnary, ImageFeatures, features_from_dict
from locpmap.formats.model_file import read_model, write_model
from locpmap.inference import ErrorFields
from locpmap.learning.parameters import Parameters

KIND, GAUGE = "crf", "zero-sum"
FIELDS = ("sizes", "cell", "shared", "presence", "clusters")
NAMES = ("unary_names", "pairwise_names", "directions")


@dataclass(frozen=True)
class ModelFile:
    """Contents of the header."""

    parameters: Parameters
    features: Callable[[Any], Features] | None
    label_names: tuple[str, ...] | None
    ignore_label: int | None
    calibration: Calibration
    training: dict[str, Any] | None

    def write(self, path: str | os.PathLike[str], weights: Array, tables: Array) -> None:
        """Write weights (D + 1, L), tables (G, F, L, L) and this header to a file."""
        if self.features is not None and not isinstance(self.features, ImageFeatures | GivenUnary):
            raise InputError(
                f"features is a {type(self.features).__name__}, expected ImageFeatures, GivenUnary or None to be"
                " saved: apply a function of your own to the inputs before fit and infer"
            )
        header = {
            "kind": KIND,
            "gauge": GAUGE,
            "parameters": asdict(self.parameters),
            "features": None if self.features is None else self.features.to_dict(),
            "label_names": self.label_names,
            "ignore_label": self.ignore_label,
            "calibration": {name: value for name, value in vars(self.calibration).items() if name != "fields"},
            "training": self.training,
        }
        fields = self.calibration.fields
        if fields is not None:
            header["fields"] = {name: np.asarray(getattr(fields, name)).tolist() for name in FIELDS}
        write_model(path, {"weights": weights, "tables": tables}, header)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple[Self, Array, Array]:
        """Return the header, the weights and the tables of a file."""
        arrays, header = read_model(path)
        if header.get("kind") != KIND:
            raise InputError(f"{path} holds a {header.get('kind')!r}, expected a {KIND!r} model")
        try:
            given = dict(header["parameters"])
            given |= {name: tuple(given[name]) for name in NAMES if name in given}
            parameters = Parameters(**given)
            features = None if header["features"] is None else features_from_dict(header["features"])
            names = None if header["label_names"] is None else tuple(str(name) for name in header["label_names"])
            fields = ErrorFields(**{name: header["fields"][name] for name in FIELDS}) if "fields" in header else None
            calibration = Calibration(**header["calibration"], fields=fields)
            file = cls(parameters, features, names, header["ignore_label"], calibration, header["training"])
            weights, tables = (np.asarray(arrays[name], np.float64) for name in ("weights", "tables"))
        except (KeyError, TypeError, ValueError, LocpmapError) as error:
            raise InputError(f"{path} is not a model of this version: its header is malformed ({error})") from None
        for name, array, shape in (
            ("weights", weights, parameters.weights_shape),
            ("tables", tables, parameters.tables_shape),
        ):
            if array.shape != shape:
                raise InputError(f"{path} is malformed: {name} has shape {array.shape}, expected {shape}")
        file._check(path, header, weights, tables)
        return file, weights, tables

    def _check(self, path: str | os.PathLike[str], header: dict[str, Any], weights: Array, tables: Array) -> None:
        """Raise InputError for contents that :meth:`write` cannot have written."""
        p, c = self.parameters, self.calibration
        again = p.expand(p.fold(weights, tables))
        whole = self.ignore_label is None or type(self.ignore_label) is int
        wrong = {
            "gauge": header.get("gauge") != GAUGE,
            "weights": not np.allclose(again[0], weights, atol=1e-9 * (1 + np.abs(weights).max())),
            "tables": not np.allclose(again[1], tables, atol=1e-9 * (1 + np.abs(tables).max(initial=0.0))),
            "label_names": self.label_names is not None and len(self.label_names) != p.n_labels,
            "ignore_label": not whole,
            "calibration": not all(type(x) is float and 0 < x < np.inf for x in (c.temperature, c.scale)),
            "fields": c.fields is not None and (c.fields.sizes.ndim, c.fields.shared.ndim) != (1, 0),
            "features": isinstance(self.features, ImageFeatures) and self.features.pairwise_names != p.pairwise_names,
        }
        for name, bad in wrong.items():
            if bad:
                raise InputError(f"{path} is malformed: {name!r} in its header does not fit the rest")
