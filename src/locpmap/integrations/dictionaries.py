"""`Refined`: a transform of dictionaries, as in the pipelines of MONAI, which it does not import."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from locpmap.arrays import is_tensor, namespace
from locpmap.errors import InputError, InputTypeError
from locpmap.formats.atomic import PathLike
from locpmap.inference.decoder import Decoder
from locpmap.refining import Refiner
from locpmap.refining.api import as_refiner
from locpmap.refining.labelled import check_same_meta


class Refined:
    """Dictionary transform that refines a network's logits, for :class:`monai.transforms.Compose`.

    Each item ``key`` of ``keys`` is replaced by its refined labels (1, H, W). The items ``{key}_probability``, (K, H,
    W), and ``{key}_entropy``, (1, H, W), are added. Volumes have three spatial axes. Like the transforms of MONAI, it
    takes one example with the channels first, so apply it to the decollated batch.

    Args:
        keys (str or sequence): Keys of logits or probabilities, (K, H, W) or (K, D, H, W).
        image_key (str, default "image"): Key of the image, (C, H, W) or (C, D, H, W); None to refine without an image.
        model (Refiner, str or os.PathLike, default None): As in :func:`locpmap.refine`.
        scores (str, default "auto"): As in :func:`locpmap.refine`.
        stride (float, default None): As in :func:`locpmap.refine`.
        spacing (float or tuple of float, default None): Sides of a voxel along the axes of volumes. The default is
            the spacing in the metadata, or 1 if there is none.
        decoder (str or Decoder, default None): As in :func:`locpmap.refine`; it must have probabilities.
        seed (int, default 0): Seed of the random generator.

    Notes:
        Tensors give tensors and NumPy arrays give arrays. If the image or the logits are a ``monai.data.MetaTensor``,
        the new items are too. They have the metadata (affine, file name, applied operations) of the image, which has
        the same pixels, and without an image those of the logits. An image and logits of the same size with different
        affines raise an error.

    Example:
        >>> from locpmap.integrations import Refined
        >>> data = {"pred": 3 * np.eye(2)[:, np.tri(32, dtype=int)], "name": "a"}
        >>> {key: np.shape(value) for key, value in Refined(keys="pred", image_key=None)(data).items()}
        {'pred': (1, 32, 32), 'name': (), 'pred_probability': (2, 32, 32), 'pred_entropy': (1, 32, 32)}

    See Also:
        :func:`locpmap.refine`
    """

    def __init__(
        self,
        keys: Hashable | Sequence[Hashable],
        image_key: Hashable | None = "image",
        model: Refiner | PathLike | None = None,
        *,
        scores: str = "auto",
        stride: float | None = None,
        spacing: Any = None,
        decoder: str | Decoder | None = None,
        seed: int = 0,
    ) -> None:
        self.keys: tuple[Hashable, ...] = tuple(keys) if isinstance(keys, list | tuple) else (keys,)
        self.image_key = image_key
        self.refiner = as_refiner(model)
        self.spacing = spacing
        self.options: dict[str, Any] = {"scores": scores, "stride": stride, "decoder": decoder, "seed": seed}

    def __call__(self, data: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return a copy of the dictionary with the refined items."""
        if not isinstance(data, Mapping):
            raise InputTypeError(f"data is a {type(data).__name__}, expected a dictionary with the keys {self.keys}")
        needed = (*self.keys, *(() if self.image_key is None else (self.image_key,)))
        if missing := [key for key in needed if key not in data]:
            raise InputError(f"data has no key {missing[0]!r}, expected it among {sorted(map(str, data))}")
        found = dict(data)
        for name in needed:
            if data[name] is not None and getattr(data[name], "ndim", None) not in (3, 4):
                shape = tuple(np.shape(data[name]))
                raise InputError(f"{name!r} has shape {shape}, expected one example with the channels first")
        image = None if self.image_key is None else data[self.image_key]
        pixels = _plain(image)
        if pixels is not None and not is_tensor(pixels):
            pixels = np.moveaxis(pixels, 0, -1)  # `refine` expects the channels of arrays last
        for key in self.keys:
            logits = data[key]
            check_same_meta(image, logits, (repr(self.image_key), repr(key)))
            like = next((value for value in (image, logits) if hasattr(value, "copy_meta_from")), None)
            space: dict[str, Any] = {"layout": "khw"}
            if logits.ndim == 4:
                sides = self.spacing if self.spacing is not None or like is None else like.pixdim
                space = {"layout": "kdhw", "spacing": 1.0 if sides is None else sides}
            result = self.refiner.refine(pixels, _plain(logits), **space, **self.options)
            if result.probability is None:
                raise InputError(f"decoder is {result.method}, which returns no probabilities, expected one that does")
            probability = namespace(result.probability).moveaxis(result.probability, -1, 0)
            new = {key: result.labels[None], f"{key}_probability": probability, f"{key}_entropy": result.entropy[None]}
            if like is not None:
                new = {name: type(like)(value).copy_meta_from(like) for name, value in new.items()}
            found |= new
        return found


def _plain(value: Any) -> Any:
    """Return a MetaTensor as a plain tensor, and other values unchanged."""
    return value.as_tensor() if hasattr(value, "as_tensor") else value
