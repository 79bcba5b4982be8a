"""Where pySigma looks for backends: this makes `sigma convert -t siftline` known."""

from siftline.sigma.backend import SiftlineBackend

__all__ = ["SiftlineBackend"]
