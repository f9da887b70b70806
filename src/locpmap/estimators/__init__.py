"""Scikit-learn estimators: :class:`CRFClassifier` for rows joined by edges, :class:`ImageCRF` for images.

>>> from sklearn.datasets import load_iris
>>> from locpmap.estimators import CRFClassifier
>>> X, y = load_iris(return_X_y=True)
>>> bool(CRFClassifier().fit(X, y).score(X, y) > 0.95)
True
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("locpmap.estimators needs scikit-learn: pip install '.[estimators]' in a clone") from error

from locpmap.estimators.images import ImageCRF
from locpmap.estimators.sites import CRFClassifier

__all__ = ["CRFClassifier", "ImageCRF"]
