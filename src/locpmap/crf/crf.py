"""`CRF`: a log-linear conditional random field that is fitted, decoded, calibrated and saved."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Self

from locpmap.arrays import Array, Restore
from locpmap.crf.calibration import Calibration, calibrate
from locpmap.crf.compose import compose
from locpmap.crf.error_fields import fit_fields
from locpmap.crf.fitting import Extractor, Task, check_objective, fit, job_of
from locpmap.crf.inputs import LabelReader, read_batches
from locpmap.crf.model_file import ModelFile
from locpmap.errors import InputError, InputTypeError, true_or_false, whole_number, within
from locpmap.features import Features, ImageFeatures
from locpmap.inference import infer
from locpmap.inference.decoder import Decoder
from locpmap.kernels.placement import choose, place
from locpmap.kernels.threads import available_threads
from locpmap.learning import FitOptions, FitResult
from locpmap.learning.batches import Batch
from locpmap.learning.parameters import Parameters, check_kind
from locpmap.potentials import Potentials
from locpmap.progress import reporting

MAX_LABELS = 2**15 - 1  # label maps are int16


class CRF:
    """Log-linear conditional random field on images, volumes or graphs.

    Unary scores are linear in features of the sites, and pairwise scores are linear in features of the edges.
    :meth:`fit` learns the weights from labelled inputs, and :meth:`infer` decodes new inputs.

    Args:
        n_labels (int): Number of labels L, from 2 to 32,767.
        features (callable or None, default ImageFeatures()): Function from an input to :class:`Features`. None if the
            inputs are `Features` already, whose ``unary_names`` and ``pairwise_names`` then name the weights. After
            :meth:`fit`, :class:`ImageFeatures` have the training images' channels. Volumes need their ``spacing=``.
        unary (str, default "tables"): Kind of the unary term. "tables" learns a weight per unary feature and label and
            a bias per label. For the other kinds the unary features are scores of the L labels, such as a network's
            logits. "scale" multiplies them by one learned factor and adds biases, "temperature" learns the factor only,
            and "given" uses them unchanged.
        tied (bool, default False): Whether edges of all steps (horizontal, vertical, ..) share their tables.
        symmetric (bool, default False): Whether tables are symmetric.
        potts (bool, default False): Whether each pairwise feature has a single Potts weight, the score of equal labels,
            instead of a table (L, L).
        non_negative (bool, default False): Whether Potts weights are constrained to be at least 0. Needs ``potts``.
        label_names (sequence of str or None, default None): Names of the labels, which are saved in the model file.
        ignore_label (int or None, default None): Label of void sites. They are removed from the graph: they have no
            loss and do not influence their neighbours.

    Attributes:
        fit_result (FitResult or None): Result of the last fit.
        calibration (Calibration): Temperature and scale that :meth:`calibrate` found (1 before), and error fields if
            it found some.

    Notes:
        Weights are in the zero-sum gauge, which makes them unique: every table and every row of `weights` sums to 0
        (with ``unary="tables"``; otherwise only the bias row). If there is a bias, tables of the feature "constant"
        also have zero row and column sums. Potts tables, multiples of the identity, need no gauge.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> labels = np.zeros((20, 8, 8), int)
        >>> for image in labels:
        ...     row, column = rng.integers(0, 4, 2)
        ...     image[row : row + 4, column : column + 4] = 1
        >>> images = labels + rng.normal(size=labels.shape)
        >>> crf = lp.CRF(n_labels=2)
        >>> crf.fit(images, labels, objective="consistent").converged
        True
        >>> result = crf.infer(images, n_samples=50, seed=0)
        >>> bool((result.labels == labels).mean() > ((images > 0.5) == labels).mean() + 0.1)
        True

    See Also:
        :class:`locpmap.estimators.ImageCRF` and :class:`locpmap.estimators.CRFClassifier` for scikit-learn,
        :class:`locpmap.nn.CRFHead` for torch.
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
        check_kind(unary, symmetric=symmetric, potts=potts, non_negative=non_negative)
        self.n_labels, self.features = int(n_labels), features
        self.unary, self.tied, self.symmetric = unary, true_or_false("tied", tied), symmetric
        self.potts, self.non_negative = potts, non_negative
        self.label_names = None if label_names is None else tuple(label_names)
        self.ignore_label = ignore_label
        self.parameters: Parameters | None = None
        self.fit_result: FitResult | None = None
        self.calibration = Calibration()
        self._learned: tuple[Array, Array] | None = None  # weights and tables
        self._training: dict[str, Any] | None = None  # fit summary of the model file that was loaded

    @property
    def weights(self) -> Array:
        """Weights of the unary features, (D + 1, L); the last row is the bias, the others may be a scaled identity."""
        return self._fitted()[1]

    @property
    def tables(self) -> Array:
        """Tables of the F pairwise features, (G, F, L, L); G is the number of steps, or 1 if tied."""
        return self._fitted()[2]

    def fit(
        self,
        inputs: Any,
        labels: Any = None,
        objective: str = "pseudolikelihood",
        *,
        blocks: Any = None,
        n_steps: int | None = None,
        l2: float = 1.0,
        site_weights: Any = None,
        validation: tuple[Any, Any] | None = None,
        seed: int = 0,
        progress: bool | Callable[[int, int, float], None] = False,
        backend: str = "auto",
        device: str = "auto",
        options: FitOptions = FitOptions(),  # noqa: B008 (frozen)
    ) -> FitResult:
        """Learn the weights from labelled inputs.

        Args:
            inputs (array, Features, list or iterable): An image (H, W) or (H, W, C), a batch (N, ..), a list of images
                whose sizes may differ, `Features`, or a list of `Features`. With ``ImageFeatures(spacing=..)``, images
                are volumes (D, H, W) or (D, H, W, C). If ``labels`` is None: an iterable, a data set with ``__len__``
                and ``__getitem__``, or a function that returns an iterable, of pairs (input, labels). It is read once,
                and its features are stored in temporary memory-mapped files. The first labelled image sets
                ``ImageFeatures.channels``: C if it has one axis more than its labels.
            labels (array, list or None, default None): Integer label of every site, in the shape of the inputs' sites.
            objective (str, default "pseudolikelihood"): "pseudolikelihood"; "composite", the composite likelihood of
                ``blocks``; "likelihood", the exact likelihood, for tiny models and trees; "consistent", the
                likelihood of the probabilities that LocPMAP reports; or "contrastive", which matches the mean features
                of the data and of labels after ``n_steps`` Gibbs sweeps from the data.
            blocks (str, tuple or list, default None): For "composite": "rows", "columns", "rows+columns" (the default),
                a tile (h, w), in volumes (d, h, w), or a list of lists of sites, which a graph needs. For "consistent":
                the blocks that LocPMAP climbs over, "sites" by default. :class:`LocPMAP` lists the constraints. For
                "contrastive": the blocks of :class:`Gibbs`, without "clusters"; "sites" by default.
            n_steps (int, default None): For "contrastive": number of Gibbs sweeps, 10 by default.
            l2 (float, default 1.0): Strength of the penalty ``l2/2 · |w|²`` on the summed loss, without biases.
            site_weights (array or list, default None): Weight of each input or site, at least 0; needs ``labels``.
            validation (tuple, default None): Pair (inputs, labels) for early stopping of "consistent" and mini-batches.
                By default a fifth of the data is held out.
            seed (int, default 0): Seed of the random generator, from 0 to 2^64 - 1.
            progress (bool or callable, default False): True shows a progress bar. A function is called as
                ``progress(done, total, value)``: iterations and the loss; for "consistent" and mini-batches, steps and
                held-out loss (the total grows while it falls); for "contrastive", steps and largest gradient entry.
            backend (str, default "auto"): "auto", "numba", "triton" or "reference".
            device (str, default "auto"): "cpu", "cuda" or "auto". "auto" uses the GPU for tensors that are on it and,
                if one is available, for large data in memory.
            options (FitOptions, default FitOptions()): Limits, checkpoints, threads and processes
                (:class:`locpmap.learning.FitOptions`).

        Returns:
            The :class:`~locpmap.learning.FitResult`, which is also stored as ``fit_result``.

        Raises:
            InputError: If an argument is out of range, shapes do not match, or no site has a label.
            TooLargeError: If the exact likelihood or a block has too many joint labellings.

        Notes:
            A pass over S sites costs O(S · L · (D + degree · F)) for "pseudolikelihood" and O(S · L · (D + L · F)) for
            rows and columns. "consistent" starts from the weights of the pseudolikelihood and stops by the held-out
            loss. If the weights of independent sites have a lower held-out loss than the result, it restarts from them.
            "contrastive" also starts from those of the pseudolikelihood, and holds no data out. More sweeps and larger
            blocks are closer to the likelihood. With a block that holds the whole image, one sweep draws an exact
            sample, and the fit maximises the likelihood.
        """
        check_objective(objective, blocks, n_steps)
        if not isinstance(options, FitOptions):
            raise InputTypeError(f"options is a {type(options).__name__}, expected locpmap.learning.FitOptions")
        within("l2", l2, 0)
        seed = whole_number("seed", seed, 0, 2**64 - 1)
        if validation is not None and not (isinstance(validation, tuple | list) and len(validation) == 2):
            raise InputTypeError(f"validation is a {type(validation).__name__}, expected a pair (inputs, labels)")
        choose(backend, device)  # raises for an impossible choice before any data are read
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
        task = Task(objective, blocks, float(l2), seed, progress, kernels.device or device, options, n_steps)
        with closing(kernels):
            self.fit_result = fit(parameters, batches, held_out, task, kernels)
        self.parameters = parameters
        self._learned = self.parameters.expand(self.fit_result.w)
        self.features, self.calibration = extract.features, Calibration()
        return self.fit_result

    def potentials(self, inputs: Any, *, mask: Any = None) -> Potentials:
        """Build the model of one input or of a batch, with unary scores times ``calibration.scale``.

        Args:
            inputs (array or Features): An image, a batch of images, or `Features`.
            mask (array or None, default None): Sites to ignore (True), as in :meth:`Potentials.grid`.

        Returns:
            Potentials: The model, for :func:`locpmap.infer`. Its results are tensors if the inputs are tensors.

        Raises:
            InputError: If the CRF has no weights yet, or the features do not match them.
        """
        parameters, weights, tables = self._fitted()
        features = Extractor(self.features)(inputs)
        parameters.check(features)
        potentials = compose(features, weights, tables, potts=self.potts, scale=self.calibration.scale, mask=mask)
        return replace(potentials, restore=Restore.like(inputs))

    def infer(self, inputs: Any, method: str | Decoder = "locpmap", *, mask: Any = None, **options: Any) -> Any:
        """Decode one input, a batch, or a list of inputs.

        Args:
            inputs (array, Features or list): An image, a batch of images, `Features`, or a list of these.
            method (str or Decoder, default "locpmap"): Name of a decoder, or a configured decoder. The name
                "locpmap" uses the calibrated temperature and fields, a configured LocPMAP its own. All use the scale.
            mask (array, list or None, default None): Sites to ignore (True), as in :meth:`Potentials.grid`; a list of
                masks for a list of inputs.
            **options: Arguments of :func:`locpmap.infer` and options of the decoder, such as ``n_samples`` or ``seed``.

        Returns:
            Result or list of Result: The result of :func:`locpmap.infer`; a list for a list of inputs.

        Raises:
            InputError, BackendError: As :meth:`potentials` and :func:`locpmap.infer`.
        """
        if isinstance(inputs, list):
            masks = [None] * len(inputs) if mask is None else mask
            first = options.pop("first_image", 0)
            return [
                self.infer(x, method, mask=m, first_image=first + n, **options)
                for n, (x, m) in enumerate(zip(inputs, masks, strict=True))
            ]
        potentials = self.potentials(inputs, mask=mask)
        if method == "locpmap":
            options = {**self.calibration.options(potentials), **options}
        return infer(potentials, method, **options)

    def calibrate(
        self,
        inputs: Any,
        labels: Any = None,
        *,
        fields: bool = False,
        n_samples: int = 16,
        seed: int = 0,
        max_evaluations: int = 40,
        progress: bool | Callable[[int, int, float], None] = False,
    ) -> Calibration:
        """Calibrate LocPMAP's probabilities or, with ``fields``, its label maps on held-out data.

        Finds the temperature of the noise and the scale of the unary scores that minimise the negative log-likelihood
        of LocPMAP's probabilities. Both are between 1/8 and 8, and later calls of :meth:`infer` use them. From 200,000
        labelled sites on, a random subset of the images with about 100,000 labelled sites is used. With ``fields``, it
        learns error fields and their temperature instead, as :class:`~locpmap.crf.Calibration` explains.

        Args:
            inputs (array, Features, list or iterable): Held-out inputs, in the forms that :meth:`fit` accepts.
            labels (array, list or None, default None): Their labels; None for pairs (input, labels).
            fields (bool, default False): Whether to learn error fields, with 8 samples per image.
            n_samples (int, default 16): Number of samples per decoding, without fields.
            seed (int, default 0): Seed of the noise, which is the same in all evaluations.
            max_evaluations (int, default 40): Maximum number of evaluations after the first, at (1, 1), without fields.
                Each decodes all held-out inputs.
            progress (bool or callable, default False): True shows a progress bar. A function is called as
                ``progress(evaluation, max_evaluations, value)``, or for fields as ``progress(step, steps, loss)``.

        Returns:
            The :class:`~locpmap.crf.Calibration`, which is also stored as ``calibration``.

        Raises:
            InputError: If no site has a label, or fields are to be learned from graphs, tiny images or fewer than 4.

        Example:
            >>> rng = np.random.default_rng(0)
            >>> labels = np.tile(np.repeat([[0, 1], [1, 0]], 4, axis=0).repeat(4, axis=1), (8, 1, 1))
            >>> images = labels + rng.normal(size=labels.shape)
            >>> crf = lp.CRF(n_labels=2, tied=True)
            >>> fitted = crf.fit(images[:4], labels[:4])
            >>> calibration = crf.calibrate(images[4:], labels[4:], max_evaluations=10)
            >>> calibration.after <= calibration.before
            True
        """
        parameters, weights, tables = self._fitted()
        seed = whole_number("seed", seed, 0, 2**64 - 1)
        if not isinstance(fields, bool):
            raise InputTypeError(f"fields is {fields!r}, expected True or False: calibrate learns the fields")
        read = LabelReader(self.n_labels, self.ignore_label)
        batches = read_batches(inputs, labels, None, Extractor(self.features), read)
        for batch in batches:
            parameters.check(batch.features)

        def model(batch: Batch, scale: float) -> Potentials:
            return compose(batch.features, weights, tables, potts=self.potts, scale=scale, mask=batch.mask())

        with reporting(progress, "calibration", "done, total, value") as callback:
            if fields:
                self.calibration = fit_fields(batches, model, seed, callback) or self.calibration
            else:
                self.calibration = calibrate(batches, model, n_samples, seed, max_evaluations, callback)
        return self.calibration

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a safetensors file with a JSON header, atomically.

        Args:
            path (str or os.PathLike): File to write. Models with ``features`` of your own, a function, cannot be saved.

        Example:
            >>> import tempfile
            >>> crf = lp.CRF(n_labels=2)
            >>> fitted = crf.fit(np.eye(6), np.eye(6, dtype=int))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     crf.save(f"{folder}/model.safetensors")
            ...     loaded = lp.CRF.load(f"{folder}/model.safetensors")
            >>> bool((loaded.weights == crf.weights).all())
            True
        """
        parameters, weights, tables = self._fitted()
        summary = self._training if self.fit_result is None else self.fit_result.summary()
        header = (parameters, self.features, self.label_names, self.ignore_label, self.calibration, summary)
        ModelFile(*header).write(path, weights, tables)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a model that :meth:`save` wrote.

        Args:
            path (str or os.PathLike): File to read. No code in it is executed, and invalid files raise InputError.

        Returns:
            CRF: The model, with its weights and calibration, ready for :meth:`infer`.
        """
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
        fields = "" if self.calibration.fields is None else ", with error fields"
        return f"<CRF: {self.n_labels} labels, {state}{fields}>"

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

    def _fitted(self) -> tuple[Parameters, Array, Array]:
        if self.parameters is None or self._learned is None:
            raise InputError("this CRF has no weights yet: call fit first, or load a model")
        return self.parameters, *self._learned
