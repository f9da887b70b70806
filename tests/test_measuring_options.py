"""Unknown options of measuring a refined image."""

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import InputError


def test_unknown_options_of_measure_are_named() -> None:
    prepared = lp.Refiner.load().prepare(None, 3 * np.eye(2)[np.tri(16, dtype=int)])
    for measure in (prepared.measure, prepared.refine(lp.LocPMAP(2)).measure):
        with pytest.raises(InputError, match="unknown option of measure 'bogus': known are decoder, device, first_im"):
            measure("area", bogus=1)
        with pytest.raises(InputError, match="unknown option of measure 'quantile': did you mean 'quantiles'"):
            measure("area", quantile=[0.5])
        assert measure("area", decoder=lp.LocPMAP(2), names=["a", "b"]).names == ("a", "b")
