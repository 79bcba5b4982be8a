"""Clients of a broker's server, with the verbs of the broker.

`calls.py` makes requests of the broker's verbs, `answers.py` turns answers into its types and errors, `following.py`
is a stream from one connection to the next, `repeating.py` a publish from one attempt to the next: none of them sends
anything, so `client.py` and `async_client.py` share them and add httpx. A stream begins with the id after which it
goes on, so that nothing is missed if it breaks before the first notification. It imports no engine.
"""

try:
    import httpx as httpx
except ImportError:
    raise ImportError("the client needs one more package: pip install 'siftline[client]'") from None
