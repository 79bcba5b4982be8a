"""Subscriptions with leases and tickets, published events, and notifications that are not lost."""
