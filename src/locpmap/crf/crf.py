"""`CRF`: the log-linear model that users hold: features to potentials, fit, infer, calibrate, save."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from locpmap.arrays import Array, Restore
from locpmap.crf.calibration import Calibration, calibrate
from locpmap.crf.compose import compose
from locpmap.crf.fitting import OBJECTIVES, Extractor, Task, fit, job_of
from locpmap.crf.inputs import LabelReader, read_batches
from locpmap.crf.model_file import ModelFile
from locpmap.crf.progress import progress_callback
from locpmap.errors import InputError, InputTypeError, unknown, whole_number, within
from locpmap.features import Features, ImageFeatures
from locpmap.inference import LocPMAP, infer
from locpmap.inference.decoder import Decoder
from locpmap.kernels.placement import choose, place
from locpmap.kernels.threads import available_threads
from locpmap.learning import FitOptions, FitResult
from locpmap.learning.batches import VOID, thinned_to
from locpmap.learning.parameters import Parameters, check_kind
from locpmap.potentials import Potentials

CALIBRATION_SITES = 100_000
MAX_LABELS = 2**15 - 1  # label maps are int16


class CRF:
    """A conditional random field whose scores are linear in features.

    Args:
        n_labels: Number of labels.
        features: What turns an input into :class:`Features`; None if inputs are `Features` already.
        unary: "tables": a weight per unary feature and label, and a bias per label.  In the others the unary features
            are scores of the labels (a network's logits): "scale" multiplies them by one number and adds biases,
            "temperature" has that number alone, and "given" takes them as they are.
        tied: Whether horizontal and vertical edges share their tables.
        symmetric: Whether tables equal their transpose.
        potts: Whether a pairwise feature has one weight, the score where labels agree, instead of a table.
        non_negative: Whether those weights stay at least 0.
        label_names: Names of the labels, kept in the model file.
        ignore_label: The label of void sites, which count for nothing, also not as neighbours.

    The weights are in the zero-sum gauge (see `locpmap.learning.parameters`): rows of `weights` sum to 0, tables sum to
    0, and those of the constant feature have zero row and column sums.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.zeros((20, 8, 8), int)
    >>> for image in labels:
    ...     row, column = rng.integers(0, 4, 2)
    ...     image[row : row + 4, column : column + 4] = 1
    >>> images = labels + rng.normal(size=labels.shape)
    >>> crf = CRF(n_labels=2)
    >>> crf.fit(images, labels, objective="consistent").converged
    True
    >>> result = crf.infer(images, seed=0)
    >>> bool((result.labels == labels).mean() > ((images > 0.5) == labels).mean() + 0.1)
    True
    """

    def __init__(
        self,
        n_labels: int,
        *,
        features: Callable[[Any], Features] | None = ImageFeatures(),  # noqa: B008 (frozen)
        unary: str = "tables",
        tied: bool = False,
        symmetric: bool = False,
        potts: bool = False,
        non_negative: bool = False,
        label_names: Sequence[str] | None = None,
        ignore_label: int | None = None,
    ) -> None:
        whole_number("n_labels", n_labels, 2, MAX_LABELS)
        if label_names is not None and len(label_names) != n_labels:
            raise InputError(f"label_names holds {len(label_names)} names, expected {n_labels}")
        if ignore_label is not None and 0 <= ignore_label < n_labels:
            raise InputError(f"ignore_label is {ignore_label}, one of the {n_labels} labels, expected another number")
        check_kind(unary, potts=potts, non_negative=non_negative)
        self.n_labels, self.features = int(n_labels), features
        self.unary, self.tied, self.symmetric = unary, tied, symmetric
        self.potts, self.non_negative = potts, non_negative
        self.label_names = None if label_names is None else tuple(label_names)
        self.ignore_label = ignore_label
        self.parameters: Parameters | None = None
        self.fit_result: FitResult | None = None
        self.calibration = Calibration()
        self._learned: tuple[Array, Array] | None = None
        self._training: dict[str, Any] | None = None  # the summary in the file this came from

    @property
    def weights(self) -> Array:
        """Label weights of the unary features, (D + 1, L); the last row is the bias."""
        return self._weights_and_tables()[0]

    @property
    def tables(self) -> Array:
        """Label tables of the pairwise features, (G, F, L, L): one per direction (or one for all) and feature."""
        return self._weights_and_tables()[1]

    def fit(
        self,
        inputs: Any,
        labels: Any = None,
        objective: str = "pseudolikelihood",
        *,
        blocks: Any = None,
        l2: float = 1.0,
        site_weights: Any = None,
        validation: tuple[Any, Any] | None = None,
        seed: int = 0,
        progress: bool | Callable[[int, int, float], None] = False,
        backend: str = "auto",
        device: str = "auto",
        options: FitOptions = FitOptions(),  # noqa: B008 (frozen)
    ) -> FitResult:
        """Learn the weights.

        Args:
            inputs: An image, a batch, a list of images (sizes may differ), `Features` or a list of them; or, without
                ``labels``, anything that yields pairs (input, labels), whose features are kept in temporary files.
                The input is read once.
            labels: Whole numbers, one per site; ``ignore_label`` marks void sites.
            objective: "pseudolikelihood"; "composite" over ``blocks``; "likelihood", exact, for tiny models and trees;
                "consistent": the likelihood of the probabilities that LocPMAP reports, begun at the pseudolikelihood's
                weights and stopped by held-out data; again from those of independent sites, if these are better.
            blocks: For "composite": "rows", "columns", "rows+columns" (default), a tile (h, w) or, on a graph, a list
                of site lists.  For "consistent": how LocPMAP climbs, "sites" by default.
            l2: Penalty ``l2/2 · |w|²`` on the summed negative log-likelihood, biases excepted.
            site_weights: How much each input, or each site, counts.
            validation: Held-out (inputs, labels) for "consistent" and mini-batches; a fifth of the data by default.
            seed: Seed of everything that is drawn, 0 to 2^64 - 1.
            progress: True for a bar, or a function of (iteration, most, value).
            backend: "auto", "numba", "triton" or "reference".
            device: "cpu", "cuda" (Triton, also for the samples of "consistent") or "auto": the GPU for tensors that lie
                there and, where there is one, for large data in memory.
            options: Limits, checkpoints, threads and processes; see :class:`locpmap.learning.FitOptions`.

        Cost of a pass: O(S · L · (D + degree · F)) for "pseudolikelihood", O(S · L² · ..) for rows and columns.
        """
        if objective not in OBJECTIVES:
            raise unknown("objective", objective, OBJECTIVES)
        if blocks is not None and objective in ("pseudolikelihood", "likelihood"):
            raise InputError(
                f"blocks is given with objective={objective!r}, expected it with 'composite' or 'consistent'"
            )
        if not isinstance(options, FitOptions):
            raise InputTypeError(f"options is a {type(options).__name__}, expected locpmap.learning.FitOptions")
        within("l2", l2, 0)
        seed = whole_number("seed", seed, 0, 2**64 - 1)
        if validation is not None and not (isinstance(validation, tuple | list) and len(validation) == 2):
            raise InputTypeError(f"validation is a {type(validation).__name__}, expected a pair (inputs, labels)")
        choose(backend, device)  # refuses what cannot be before anything is read
        extract, read = Extractor(self.features), LabelReader(self.n_labels, self.ignore_label)
        batches = read_batches(inputs, labels, site_weights, extract, read)
        if not batches:
            raise InputError(
                f"labels holds nothing but ignore_label={self.ignore_label}, so that no site has a label that counts,"
                " expected labelled data"
            )
        held_out = None if validation is None else read_batches(*validation, None, extract, read)
        processes = options.processes
        n_threads = options.n_threads or max(1, available_threads() // processes.per_machine)
        kernels = place(backend, device, job_of(inputs, batches, self.n_labels, processes), n_threads)
        parameters = self._parameters(batches[0].features)
        task = Task(objective, blocks, float(l2), seed, progress, kernels.device or device, options)
        try:
            self.fit_result = fit(parameters, batches, held_out, task, kernels)
        finally:
            kernels.close()
        self.parameters = parameters
        self._learned = self.parameters.expand(self.fit_result.w)
        self.features, self.calibration = extract.features, Calibration()
        return self.fit_result

    def potentials(self, inputs: Any, *, mask: Any = None) -> Potentials:
        """The model of one input or of a batch; ``mask`` as in :meth:`Potentials.grid`."""
        weights, tables = self._weights_and_tables()
        features = Extractor(self.features)(inputs)
        assert self.parameters is not None
        self.parameters.check(features)
        potentials = compose(features, weights, tables, potts=self.potts, scale=self.calibration.scale, mask=mask)
        return replace(potentials, restore=Restore.like(inputs))

    def infer(self, inputs: Any, method: str | Decoder = "locpmap", *, mask: Any = None, **options: Any) -> Any:
        """Decode an input or a batch (a :class:`Result`), or a list (a list of them); options as in `locpmap.infer`."""
        if isinstance(inputs, list):
            masks = [None] * len(inputs) if mask is None else mask
            first = options.pop("first_image", 0)
            return [
                self.infer(x, method, mask=m, first_image=first + n, **options)
                for n, (x, m) in enumerate(zip(inputs, masks, strict=True))
            ]
        if method == "locpmap":
            options = {"temperature": self.calibration.temperature, **options}
        return infer(self.potentials(inputs, mask=mask), method, **options)

    def calibrate(
        self,
        inputs: Any,
        labels: Any = None,
        *,
        n_samples: int = 16,
        seed: int = 0,
        max_evaluations: int = 40,
        progress: bool | Callable[[int, int, float], None] = False,
    ) -> Calibration:
        """Fit the noise's temperature and the scale of the unary scores on held-out data, and keep them.

        They minimise the negative log-likelihood of the probabilities that LocPMAP reports (``probability=
        "conditional"``), by at most ``max_evaluations`` decodings with the same noise (of about 100,000 sites, if there
        are more).  Both stay between 1/8 and 8.
        """
        weights, tables = self._weights_and_tables()
        assert self.parameters is not None
        read = LabelReader(self.n_labels, self.ignore_label)
        source = thinned_to(read_batches(inputs, labels, None, Extractor(self.features), read), CALIBRATION_SITES)
        for batch in source:
            self.parameters.check(batch.features)

        def loss(temperature: float, scale: float) -> float:
            decoder = LocPMAP(n_samples, temperature=temperature)
            total, count = 0.0, 0
            for batch in source:
                known = batch.labels != VOID
                potentials = compose(batch.features, weights, tables, potts=self.potts, scale=scale, mask=batch.mask())
                probability = np.asarray(infer(potentials, decoder, seed=seed).probability, np.float64)
                rows = probability.reshape(*batch.labels.shape, -1)[known]
                total -= float(np.log(np.maximum(rows[np.arange(len(rows)), batch.labels[known]], 1e-300)).sum())
                count += len(rows)
            if count == 0:
                raise InputError("no site has a label that counts, expected labelled data")
            return total / count

        with progress_callback(progress, "calibration") as callback:
            self.calibration = calibrate(loss, max_evaluations, callback)
        return self.calibration

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file (safetensors with a JSON header), whole or not at all."""
        weights, tables = self._weights_and_tables()
        assert self.parameters is not None
        summary = self._training if self.fit_result is None else self.fit_result.summary()
        ModelFile(self.parameters, self.features, self.label_names, self.ignore_label, self.calibration, summary).write(
            path, weights, tables
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CRF:
        """Read what :meth:`save` wrote; anything else is refused by name."""
        file, weights, tables = ModelFile.read(path)
        p = file.parameters
        crf = cls(
            p.n_labels,
            features=file.features,
            unary=p.unary,
            tied=p.n_groups == 1,
            symmetric=p.symmetric,
            potts=p.potts,
            non_negative=p.non_negative,
            label_names=file.label_names,
            ignore_label=file.ignore_label,
        )
        crf.parameters, crf._learned, crf.calibration = p, (weights, tables), file.calibration
        crf._training = file.training
        return crf

    def __repr__(self) -> str:
        state = "no weights yet" if self.parameters is None else f"{self.parameters.size} weights"
        return f"<CRF: {self.n_labels} labels, {state}>"

    def _parameters(self, features: Features) -> Parameters:
        return Parameters(
            self.n_labels,
            features.unary_names,
            features.pairwise_names,
            1 if self.tied else len(features.directions),
            self.unary,
            self.symmetric,
            self.potts,
            self.non_negative,
            features.directions,
        )

    def _weights_and_tables(self) -> tuple[Array, Array]:
        if self._learned is None:
            raise InputError("this CRF has no weights yet: call fit first, or load a model")
        return self._learned
