"""The drawing has an overlay, and in it a tree that reaches every node."""

from __future__ import annotations

from math import hypot

from ingeborg.bench.overlay.drawing import ROOT, drawing, placed


def test_the_tree_is_of_the_overlays_links_and_reaches_every_node() -> None:
    drawn = drawing(60)
    links = {tuple(link) for link in drawn["links"]}
    parents = drawn["parents"]
    assert parents[ROOT] == ROOT
    for node, parent in enumerate(parents):
        if node != ROOT:
            assert tuple(sorted((node, parent))) in links
            seen = {node}
            while parent != ROOT:
                assert parent not in seen
                seen.add(parent)
                parent = parents[parent]
    assert len(links) > 60 == len(drawn["places"])
    assert drawing(60) == drawn


def test_a_node_stands_as_far_out_as_its_way_is_long_and_apart_from_others() -> None:
    places = placed([0, 0, 0, 1, 1, 2])
    assert [round(hypot(*place), 3) for place in places] == [0.0, 0.5, 0.5, 1.0, 1.0, 1.0]
    assert len(set(places)) == len(places)


def test_a_tree_of_one_is_a_point() -> None:
    assert placed([0]) == [(0.0, 0.0)]
