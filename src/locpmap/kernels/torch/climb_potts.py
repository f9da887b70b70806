"""LocPMAP's climb on a 4-connected grid with Potts weights, two labels or more, in the lazy noise scheme."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from locpmap.kernels.perturbation import LOGISTIC, Perturbation
from locpmap.kernels.torch.climb_sites import Class, climb
from locpmap.kernels.torch.perturbing import LAZY, begin, perturb


def climb_potts(
    unary: torch.Tensor,
    right: torch.Tensor,
    down: torch.Tensor,
    temperature: float,
    k0: int,
    k1: int,
    first_image: int,
    first_sample: int,
    start: int,
    given: torch.Tensor,
    row: int,
    column: int,
    full_width: int,
    max_sweeps: int,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Climb for every image and sample; fills ``labels`` (n, S, R).

    Returns the last sweep that changed anything, (n, R).
    """
    height, width = right.shape[1], down.shape[2]
    rows = torch.arange(row, row + height, device=unary.device)[:, None]
    columns = torch.arange(column, column + width, device=unary.device)
    site_id = (rows * full_width + columns).flatten()
    noise = Perturbation(LOGISTIC if unary.shape[2] == 2 else LAZY, temperature, k0, k1)
    scores = perturb(unary, site_id, noise, first_image, first_sample, labels.shape[2])
    begin(unary, scores, site_id, noise, start, given, first_image, first_sample, labels)
    weights = around(right, down)
    steps = torch.tensor([-1, 1, -width, width], device=unary.device)
    classes = []
    for colour in (0, 1):
        sites = ((rows + columns) % 2 == colour).flatten().nonzero()[:, 0]
        # Beyond the border the weight is 0, so that any site may stand for the neighbour.
        neighbour = (sites[:, None] + steps).clamp(0, height * width - 1)
        classes.append(Class(sites, neighbour, weights[:, sites], scores[:, sites]))
    del scores  # the classes have copies
    return climb(classes, labels, max_sweeps)


def around(right: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """The weights to the left, right, above and below of every site, (1|n, S, 4); 0 beyond the border."""
    horizontal = pad(right, (1, 0)), pad(right, (0, 1))
    vertical = pad(down, (0, 0, 1, 0)), pad(down, (0, 0, 0, 1))
    n_images = max(len(right), len(down))
    return torch.stack([w.expand(n_images, -1, -1) for w in (*horizontal, *vertical)], dim=3).flatten(1, 2)
