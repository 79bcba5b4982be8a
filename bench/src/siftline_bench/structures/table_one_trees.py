"""The balanced binary tree of the grouped filter and of the red-black tree in table_one.py: an AA tree (D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class KeyNode:
    """A key with its sets of ids."""

    __slots__ = ("ids", "key", "left", "level", "right")

    def __init__(self, key: float, width: int) -> None:
        self.key = key
        self.ids: tuple[set[int], ...] = tuple(set() for _ in range(width))
        self.left: KeyNode | None = None
        self.right: KeyNode | None = None
        self.level = 1


class KeyTree:
    """A balanced binary tree of keys, each with `width` sets of ids (D2)."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.root: KeyNode | None = None
        self.steps = 0
        self.n_entries = 0

    def add(self, key: float, place: int, id: int) -> None:
        """Put an id into one of the sets of a key."""
        self.root = self._add(self.root, key, place, id)
        self.n_entries += 1

    def _add(self, node: KeyNode | None, key: float, place: int, id: int) -> KeyNode:
        self.steps += 1
        if node is None:
            node = KeyNode(key, self._width)
            self.n_entries += 1
        if key == node.key:
            node.ids[place].add(id)
            return node
        if key < node.key:
            node.left = self._add(node.left, key, place, id)
        else:
            node.right = self._add(node.right, key, place, id)
        return _split(_skew(node))

    def remove(self, key: float, place: int, id: int) -> None:
        """Take an id out of one of the sets of a key; a key without ids goes."""
        node = self.root
        while node is not None and node.key != key:
            self.steps += 1
            node = node.left if key < node.key else node.right
        assert node is not None
        node.ids[place].remove(id)
        self.n_entries -= 1
        if not any(node.ids):
            self.root = self._without(self.root, key)
            self.n_entries -= 1

    def _without(self, node: KeyNode | None, key: float) -> KeyNode | None:
        self.steps += 1
        assert node is not None
        if key < node.key:
            node.left = self._without(node.left, key)
        elif key > node.key:
            node.right = self._without(node.right, key)
        elif node.left is None or node.right is None:
            return node.left or node.right
        else:
            heir = node.right
            while heir.left is not None:
                self.steps += 1
                heir = heir.left
            node.key, node.ids = heir.key, heir.ids
            node.right = self._without(node.right, heir.key)
        return _rebalanced(node)

    def walk(self, low: float, high: float) -> Iterator[KeyNode]:
        """Yield the nodes with low <= key <= high in order, without going where there are none."""
        pending: list[KeyNode] = []
        node = self.root
        while node is not None or pending:
            while node is not None:
                self.steps += 1
                if node.key < low:
                    node = node.right
                    continue
                pending.append(node)
                node = node.left
            if not pending:
                return
            node = pending.pop()
            if node.key > high:
                return
            yield node
            node = node.right


def _skew(node: KeyNode) -> KeyNode:
    left = node.left
    if left is None or left.level != node.level:
        return node
    node.left, left.right = left.right, node
    return left


def _split(node: KeyNode) -> KeyNode:
    right = node.right
    if right is None or right.right is None or right.right.level != node.level:
        return node
    node.right, right.left = right.left, node
    right.level += 1
    return right


def _rebalanced(node: KeyNode) -> KeyNode:
    """Restore the levels above a removed node."""
    least = min(node.left.level if node.left else 0, node.right.level if node.right else 0)
    if least < node.level - 1:
        node.level -= 1
        if node.right is not None:
            node.right.level = min(node.right.level, node.level)
    node = _skew(node)
    if node.right is not None:
        node.right = _skew(node.right)
        if node.right.right is not None:
            node.right.right = _skew(node.right.right)
    node = _split(node)
    if node.right is not None:
        node.right = _split(node.right)
    return node
