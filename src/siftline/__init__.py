"""Siftline."""
