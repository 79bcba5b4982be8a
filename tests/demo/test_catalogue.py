from __future__ import annotations

import json

import numpy as np
import pytest

import siftline
from siftline.demo.catalogue import Dictionary, Shop, draw_shop
from siftline.demo.drawing import draw_catalogue


@pytest.fixture(scope="module")
def shop() -> Shop:
    return draw_shop(500, 400, seed=3)


def test_attributes_have_names_of_their_own() -> None:
    for seed in range(5):
        catalogue = draw_catalogue(np.random.default_rng(seed))
        names = Dictionary(catalogue.is_text).names.to_pylist()
        assert len(set(names)) == 10_204
        assert {"brand", "price"} <= set(names[:20])


def test_a_seed_gives_the_same_shop(shop: Shop) -> None:
    again, other = draw_shop(500, 400, seed=3), draw_shop(500, 400, seed=4)
    assert again.subscriptions == shop.subscriptions
    assert again.events == shop.events
    assert other.subscriptions != shop.subscriptions


def test_each_product_satisfies_the_wish_that_is_planted_in_it(shop: Shop) -> None:
    engine = siftline.Engine("scan")
    assert engine.add_many(shop.subscriptions) == 500
    for event, planted in zip(shop.events["event"].to_pylist()[:100], shop.planted.tolist(), strict=False):
        assert planted in engine.match(json.loads(event))


def test_wishes_are_of_many_kinds(shop: Shop) -> None:
    texts = "\n".join(shop.subscriptions["expression"].to_pylist())
    for part in (" = '", " in ('", " <= ", " >= ", " between ", " or price <= ", " and "):
        assert part in texts


def test_products_have_texts_and_numbers(shop: Shop) -> None:
    trees = [json.loads(event) for event in shop.events["event"].to_pylist()]
    assert {type(value) for tree in trees for value in tree.values()} == {str, int}
    assert all(5 <= len(tree) <= 40 for tree in trees)
    shares = sorted(sum(name in tree for tree in trees) for name in {name for tree in trees for name in tree})
    assert shares[-1] > 400 * 0.2
    assert shares[len(shares) // 2] < 400 * 0.02
