"""Clients of a broker's server, with the verbs of the broker; they need the extra `[client]`."""
