"""Workloads, runner, measurements, results."""
