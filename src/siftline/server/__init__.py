"""The HTTP face of the broker, and its console.

A thin face of the broker, on Starlette. What is cheap comes first: `connections.py` bounds connections, heads and the
time of each phase, below the application, and `tls.py` handshakes; `access.py` says who may what, `rates.py` how
often; only then `bodies.py` reads a body, up to the limit of its route, and counts what all bodies hold.
`threads.py`: nothing that waits for a lock or the disk, or computes for long, runs on the event loop. Few threads
compute, because the loop waits for each of them (Python runs one at a time); the lines before them have an end.
`events.py` finds the events of a body without parsing them (`encoding/json_array.py`).

`app.py` finds the route by the path as it was sent; `subscription_routes.py`, `event_routes.py`, `stream_routes.py`
and `admin_routes.py` take requests apart; `problems.py` says what is wrong. `streams.py` joins log and hub;
`open_streams.py` counts streams by ticket and owner, and checks by what right each is read whenever keys change.
`run.py` is uvicorn, and an orderly end. `console.html` is one page without a build step.
"""
