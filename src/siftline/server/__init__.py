"""The HTTP face of the broker, and its console."""
