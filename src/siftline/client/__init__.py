"""Clients of a broker's server, with the methods of the broker.

`calls.py` turns the methods into requests, `answers.py` turns responses into results and errors, `following.py` keeps
the state of a stream over several connections, `repeating.py` decides when a publish is sent again. None of them sends
anything, so `client.py` and `async_client.py` share them and add httpx (`connection.py`). A stream begins with the id
at which it resumes, so that nothing is missed if it breaks before the first notification. The client imports no engine.
"""

try:
    import httpx as httpx
except ImportError:
    raise ImportError("the client needs one more package: pip install 'siftline[client]'") from None
