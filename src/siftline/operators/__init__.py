"""Predicates too expensive to index: operators that run code, and schedules that call as little as possible."""
