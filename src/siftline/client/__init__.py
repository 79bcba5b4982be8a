"""Clients of a broker's server, with the verbs of the broker."""

try:
    import httpx as httpx
except ImportError:
    raise ImportError("the client needs one more package: pip install 'siftline[client]'") from None
