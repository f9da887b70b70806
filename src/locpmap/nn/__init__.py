"""CRFs in torch: losses for a CRF on top of a network's logits, and a head with the pairwise weights.

Logits have the shape (N, K, H, W) and labels (N, H, W), as is usual in torch. Logits of volumes have the shape
(N, K, D, H, W). Scores are log-potentials: larger is better.

>>> import torch
>>> from locpmap import nn
>>> logits = torch.zeros(1, 2, 3, 4, requires_grad=True)
>>> loss = nn.PseudolikelihoodLoss()(logits, 1.0, torch.zeros(1, 3, 4, dtype=torch.int64))
>>> loss.backward()
>>> bool((logits.grad[:, 0] < 0).all())  # p(label | neighbours) - 1{label is true}
True
"""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("locpmap.nn needs torch: pip install '.[torch]' in a clone") from error

from locpmap.nn.field_loss import FieldLoss
from locpmap.nn.head import CRFHead
from locpmap.nn.losses import CompositeLikelihoodLoss, ConsistentLoss, PseudolikelihoodLoss, consistent_loss
from locpmap.nn.network import FCN, CRFNetwork
from locpmap.nn.training import Recipe, choose_device, train

__all__ = [
    "FCN",
    "CRFHead",
    "CRFNetwork",
    "CompositeLikelihoodLoss",
    "ConsistentLoss",
    "FieldLoss",
    "PseudolikelihoodLoss",
    "Recipe",
    "choose_device",
    "consistent_loss",
    "train",
]
