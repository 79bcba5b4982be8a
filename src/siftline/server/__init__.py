"""The HTTP interface of the broker on Starlette, and its console.

- Cheap checks come first. `connections.py` bounds connections, request heads and the time of each phase, below the
  application, and `tls.py` bounds handshakes. `access.py` checks permissions, `rates.py` limits rates. Only then
  `bodies.py` reads a body, up to the limit of its route, and counts the bytes of all bodies.
- `threads.py`: code that waits for a lock or the disk, or computes for long, does not run on the event loop. Few
  threads compute, because the event loop competes with them for the interpreter; their queues are bounded.
- `app.py` maps the path as it was sent to a route. `subscription_routes.py`, `event_routes.py`, `stream_routes.py` and
  `admin_routes.py` handle requests; `problems.py` turns errors into responses. `events.py` splits a body into events
  without parsing them (`encoding/json_array.py`).
- `streams.py` reads the log and the hub. `open_streams.py` counts streams by ticket and owner, and checks the
  permissions of open streams again whenever keys change.
- `run.py` runs uvicorn with an orderly shutdown. `console.html` is one page without a build step.
"""
