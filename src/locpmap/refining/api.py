"""`refine`: refined labels with calibrated uncertainty, from an image and a network's logits."""

import os
from collections.abc import Callable
from typing import Any

from locpmap.errors import InputTypeError
from locpmap.formats.atomic import PathLike
from locpmap.inference.decoder import Decoder
from locpmap.refining.refiner import Refiner
from locpmap.result import Result


def refine(
    image: Any,
    logits: Any,
    model: Refiner | PathLike | None = None,
    *,
    layout: str = "auto",
    scores: str = "auto",
    stride: float | None = None,
    spacing: Any = None,
    mask: Any = None,
    decoder: str | Decoder | None = None,
    keep_samples: bool = False,
    seed: int = 0,
    device: str = "auto",
    progress: bool | Callable[[int, int], None] | None = None,
) -> Result:
    """Refine a segmentation network's prediction of an image or, with ``spacing=``, of a volume.

    The scores of each pixel are combined with the network's mean prediction at nearby pixels of similar colour.
    LocPMAP draws whole label maps, in which neighbours are coupled and errors are shared by regions.
    :class:`locpmap.refining.Prepared` documents the model, the labels and the probabilities.

    Args:
        image (array or tensor): (H, W) or (H, W, C) as a NumPy array, or (C, H, W) as a tensor; None if there is no
            image. Any number of channels, dtype and value range is accepted. A batch of logits needs a batch of
            images, with the batch axis first.
        logits (array or tensor): The network's scores, (H, W, K) or (K, H, W), or a batch of them: logits or
            probabilities. The outputs of Hugging Face (``.logits``, or the queries of Mask2Former and MaskFormer) and
            torchvision (``["out"]``) models are accepted. The dimensions of ``xarray.DataArray`` objects are found by
            name (:func:`locpmap.integrations.refine_xarray`). The scores have the image's size, or that size divided
            by a stride, and are resized. A score of ``-inf`` forbids a label. With ``spacing``, image and logits have
            another axis D before H and W.
        model (Refiner, str or os.PathLike, default None): A refiner or the path of its file. None uses the bundled
            refiner.
        layout (str, default "auto"): "hwk" for (H, W, K), "khw" for (K, H, W), or "auto" for the layout that matches
            the image; "dhwk" or "kdhw" for volumes. Without an image, "auto" takes an axis as the label axis if it is
            at least four times shorter than the others. An ambiguous shape raises InputError.
        scores (str, default "auto"): "logits", "probabilities", or "auto". With "auto", values from 0 to 1 that sum to
            1 over the labels are taken as probabilities.
        stride (float, default None): Image pixels per score of the network, along an axis. The default is the ratio of
            the sizes. Specify it if you have already resized coarse logits.
        spacing (float or tuple of float, default None): Sides (dz, dy, dx) of a voxel, such as those in mm, or one
            number for cubes. It makes the input one volume (D, H, W). Images of nibabel and volumes of MONAI
            (``MetaTensor``) carry their own. ``layout="dhwk"`` or ``"kdhw"`` without a spacing takes voxels as cubes of
            side 1. Otherwise the first of four axes counts independent images.
        mask (array, default None): Booleans of the image's shape, with or without a batch axis, True where a pixel is
            ignored. Ignored pixels get label -1, and their colours and scores may hold anything, such as NaN (except
            scores that are resized).
        decoder (str or Decoder, default None): A decoder of :func:`locpmap.infer`, or its name. The default is
            ``LocPMAP(start="perturbed")``; ``LocPMAP(n_samples=100, start="perturbed")`` draws more samples.
        keep_samples (bool, default False): Return the drawn label maps in ``result.samples``, (M, H, W).
            :func:`locpmap.measure` and the decision for boundaries need them.
        seed (int, default 0): Seed of the random generator.
        device (str, default "auto"): As in :func:`locpmap.infer`.
        progress (bool or callable, default None): True shows a progress bar. A callable is called as
            ``progress(done, total)``, in samples of LocPMAP or in the unit of another decoder (:func:`locpmap.infer`).

    Returns:
        Result: ``labels`` (H, W), ``probability`` and ``variance`` (H, W, K) and ``entropy`` (H, W), with a batch axis
        for a batch and the axis D for a volume. They are tensors if the logits are tensors, otherwise NumPy arrays. The
        labels are a local maximum of the model's score, and differ from the most probable labels in a few pixels.
        ``n_changed`` counts labels that differ from the network's, and ``changes`` says why if there is none.

    Raises:
        InputError: If the shapes do not match, the layout is ambiguous, a value is not valid, or the decoder cannot
            decode the model.
        BackendError: If the requested device is not available.

    Notes:
        Cost: that of :func:`locpmap.infer` on the same grid, plus O(33 · H · W · K) for similar pixels.

    Example:
        >>> image = np.zeros((64, 64, 3), np.uint8)
        >>> image[:, 30:] = 200
        >>> truth = (np.arange(64) >= 30).astype(int) * np.ones((64, 1), int)
        >>> coarse = 4.0 * np.eye(3)[truth].reshape(8, 8, 8, 8, 3).mean(axis=(1, 3))  # one score for 8 × 8 pixels
        >>> result = lp.refine(image, coarse)
        >>> result.labels.shape, bool((result.labels == truth).all())
        ((64, 64), True)

    See Also:
        :class:`Refiner`, :meth:`Refiner.fit` for your own data, :func:`locpmap.scale.refine_tiled` for large rasters.
    """
    reading = {"layout": layout, "scores": scores, "stride": stride, "spacing": spacing, "mask": mask}
    prepared = as_refiner(model).prepare(image, logits, **reading)
    return prepared.refine(decoder, keep_samples=keep_samples, seed=seed, device=device, progress=progress)


def as_refiner(model: Refiner | PathLike | None) -> Refiner:
    """Return a refiner unchanged, load one from a path, or load the bundled one for None."""
    if isinstance(model, Refiner):
        return model
    if model is not None and not isinstance(model, str | os.PathLike):
        raise InputTypeError(f"model is a {type(model).__name__}, expected a Refiner or its file")
    return Refiner.load(model)
