"""Model to flat arrays: attribute ids, value domains, events."""
