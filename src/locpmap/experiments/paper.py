"""The paper's Tables 1 and 2: intersection over union of the background, of the foreground, and their mean."""

from __future__ import annotations

from typing import Any

MNIST: dict[str, Any] = {
    "setting": "Table 1: MNIST, Gumbel noise, SNR 0.25, 5,000 training and 5,000 test images",
    "raw": {
        "LBP": [0.846, 0.029, 0.438],
        "MF": [0.861, 0.059, 0.460],
        "ICM-iter": [0.722, 0.312, 0.517],
        "SA": [0.806, 0.234, 0.520],
        "ICM": [0.730, 0.319, 0.525],
        "Gibbs": [0.840, 0.233, 0.537],
        "LocPMAP": [0.753, 0.337, 0.545],
    },
    "deep": {
        "LBP": [0.854, 0.112, 0.446],
        "MF": [0.837, 0.209, 0.523],
        "ICM-iter": [0.797, 0.379, 0.588],
        "SA": [0.837, 0.202, 0.520],
        "ICM": [0.807, 0.389, 0.598],
        "Gibbs": [0.840, 0.197, 0.518],
        "LocPMAP": [0.826, 0.404, 0.615],
    },
}

SILHOUETTES: dict[str, Any] = {
    "setting": "Table 2: Caltech 101 silhouettes, Gaussian noise, SNR 0.5, 5,000 training and 5,000 test images",
    "raw": {
        "LBP": [0.539, 0.080, 0.310],
        "MF": [0.686, 0.598, 0.642],
        "ICM-iter": [0.659, 0.637, 0.648],
        "SA": [0.688, 0.623, 0.655],
        "Gibbs": [0.692, 0.624, 0.658],
        "ICM": [0.672, 0.661, 0.667],
        "LocPMAP": [0.681, 0.666, 0.673],
    },
    "deep": {
        "LBP": [0.539, 0.154, 0.347],
        "MF": [0.695, 0.674, 0.684],
        "ICM-iter": [0.731, 0.727, 0.729],
        "SA": [0.692, 0.696, 0.694],
        "Gibbs": [0.708, 0.696, 0.702],
        "ICM": [0.746, 0.733, 0.739],
        "LocPMAP": [0.754, 0.735, 0.745],
    },
}
