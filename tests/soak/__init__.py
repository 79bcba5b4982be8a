"""A long run against a real server that is attacked meanwhile, and a model of what must come out of it."""
