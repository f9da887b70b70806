"""LocPMAP climb with error fields on a 4-connected grid with Potts weights >= 0."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.fields import Fields, Moves
from locpmap.kernels.perturbation import GridClimb
from locpmap.kernels.reference.add_fields import add_fields
from locpmap.kernels.reference.climb_potts import draw


def climb_fields(climb: GridClimb, scores: Array, fields: Fields, moves: Moves, labels: Array) -> Array:
    """Fill ``labels`` (n, S, R); ``scores`` are the unaries by row and label, (n, H, L, W).

    Return the number of the last sweep that changed a label, (n, R).
    """
    key = (int(climb.k0), int(climb.k1))
    window = (climb.right.shape[1], climb.down.shape[2], climb.row, climb.column)
    unary = scores.swapaxes(2, 3).reshape(len(scores), -1, scores.shape[2])
    sweeps, out = np.zeros((len(labels), labels.shape[2]), np.int32), np.empty(unary.shape, unary.dtype)
    for s in range(labels.shape[2]):
        mine = Moves(moves.offsets[:, s : s + 1], moves.phases[:, s : s + 1])
        add_fields(unary, window, fields, mine, key, climb.first_image, climb.first_sample + s, out)
        for n in range(len(labels)):
            labels[n, :, s], sweeps[n, s] = draw(climb, n, s, out[n])
    return sweeps
