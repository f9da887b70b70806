"""The digits of the experiments, which their tests load many times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="session")
def digits_are_parsed_once() -> Iterator[None]:
    """Give every run of an experiment a copy of the digits that the first one loaded."""
    from locpmap_paper.experiments.denoising import Denoising

    load = Denoising.load
    loaded: list[Any] = []

    def load_once(self: Denoising, folder: Any = None) -> Any:
        if self.dataset != "digits":
            return load(self, folder)
        if not loaded:
            loaded.append(load(self, folder))
        (maps,) = loaded
        return replace(maps, train=maps.train.copy(), test=maps.test.copy())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Denoising, "load", load_once)
        yield
