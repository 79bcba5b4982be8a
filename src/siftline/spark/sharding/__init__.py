"""Sharding: in which shard a subscription is stored, and how a shard is built, filtered and compacted.

It imports `runtime` and `directory`.
"""
