"""Predicates too expensive to index."""
