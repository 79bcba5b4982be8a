"""Predicates too expensive to index: operators that run code, what they bind, and schedules that call as little as possible."""
