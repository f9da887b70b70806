"""pydensecrf2 with the settings that the benchmarks compare with."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
ITERATIONS = 10


@dataclass(frozen=True)
class Dense:
    """pydensecrf2 with settings of its smoothness and bilateral kernels; the defaults are those of its README."""

    compat: float = 3
    sxy: float = 80
    srgb: float = 13
    bilateral: float = 10

    def __call__(self, image: npt.NDArray[np.uint8], logits: Array) -> Array:
        """Return probabilities (H, W, K) after ten mean-field iterations; (D, H, W, K) of a volume."""
        import pydensecrf.densecrf as dcrf

        if logits.ndim == 4:
            return self._of_volume(image, logits)
        height, width, n_labels = logits.shape
        crf = dcrf.DenseCRF2D(width, height, n_labels)
        crf.setUnaryEnergy(np.ascontiguousarray(-logits.reshape(-1, n_labels).T, np.float32))
        crf.addPairwiseGaussian(sxy=3, compat=self.compat)
        pixels = np.array(image)  # pydensecrf does not accept read-only arrays
        crf.addPairwiseBilateral(sxy=self.sxy, srgb=self.srgb, rgbim=pixels, compat=self.bilateral)
        return np.asarray(crf.inference(ITERATIONS)).T.reshape(height, width, n_labels)

    def _of_volume(self, scan: npt.NDArray[np.uint8], logits: Array) -> Array:
        import pydensecrf.densecrf as dcrf
        from pydensecrf.utils import create_pairwise_bilateral, create_pairwise_gaussian

        *shape, n_labels = logits.shape
        crf = dcrf.DenseCRF(int(np.prod(shape)), n_labels)
        crf.setUnaryEnergy(np.ascontiguousarray(-logits.reshape(-1, n_labels).T, np.float32))
        crf.addPairwiseEnergy(create_pairwise_gaussian((3,) * 3, shape), compat=self.compat)
        colours = (self.srgb,) * scan.shape[-1]
        bilateral = create_pairwise_bilateral((self.sxy,) * 3, colours, scan, chdim=3)
        crf.addPairwiseEnergy(bilateral, compat=self.bilateral)
        return np.asarray(crf.inference(ITERATIONS)).T.reshape(*shape, n_labels)


# The default settings with weaker couplings, shorter range, and two widths of the colour kernel.
GRID = [Dense(3 * weak, sxy, srgb, 10 * weak) for weak, sxy, srgb in itertools.product((0.1, 0.3), (20, 60), (5, 13))]
