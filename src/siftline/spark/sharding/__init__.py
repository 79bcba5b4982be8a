"""Sharding answers which shard a subscription is stored in, and how a shard is built, filtered and compacted.

Below it are `runtime` and `directory`.
"""
