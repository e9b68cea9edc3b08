"""The second readings of next fit and first fit, compared with naive ones, and with the first readings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.autoscaler.groups.instance import NOWHERE, Instance, by_size, rscore
from ingeborg.autoscaler.groups.packing import DOCUMENT, pack
from ingeborg.bench.packing.readings import FF_BY_AGE, FFD_BY_AGE, NF_BIN_0, NFD_BIN_0, SECOND, NextFit, twelve
from tests.autoscaler.groups.drawn import instances, valid

pairs = pytest.mark.parametrize(
    ("name", "first"), [(NF_BIN_0, "NF"), (NFD_BIN_0, "NFD"), (FF_BY_AGE, "FF"), (FFD_BY_AGE, "FFD")]
)


def naive(instance: Instance, decreasing: bool, next_fit: bool) -> list[int]:
    """Pack with lists: bins in the order in which they were opened, each with its name and its load."""
    sizes, where = instance.sizes, [NOWHERE] * len(instance.sizes)
    bins: list[list[float]] = [[0, 0.0, 0]] if next_fit and sizes else []
    for item in by_size(sizes) if decreasing else range(len(sizes)):
        found = None
        for bin in bins[-1:] if next_fit else bins:
            if bin[1] + sizes[item] <= instance.capacity or not bin[2]:
                found = bin
                break
        if found is None:
            used = {int(bin[0]) for bin in bins}
            former = instance.former[item]
            name = former if former != NOWHERE and former not in used else min(set(range(99)) - used)
            found = [name, 0.0, 0]
            bins.append(found)
        found[1] += sizes[item]
        found[2] += 1
        where[item] = int(found[0])
    return where


@pairs
@given(instance=instances())
def test_a_second_reading_packs_as_the_naive_one_does(name: str, first: str, instance: Instance) -> None:
    where = pack(SECOND[name], instance)
    assert where == naive(instance, first.endswith("D"), first.startswith("N"))
    valid(instance, where)


@pairs
@given(instance=instances())
def test_in_a_second_reading_names_do_not_change_the_number_of_bins(name: str, first: str, instance: Instance) -> None:
    arriving = Instance(instance.sizes, None, instance.capacity)
    assert len(set(pack(SECOND[name], instance))) == len(set(pack(DOCUMENT[first], arriving)))


def test_next_fit_that_opens_bin_0_first_moves_its_first_item() -> None:
    instance = Instance([3.0, 9.0, 4.0], [1, 2, 0], 10.0)
    assert pack(DOCUMENT["NF"], instance) == [1, 2, 0]
    assert pack(SECOND[NF_BIN_0], instance) == [0, 2, 1]
    assert pack(DOCUMENT["NFD"], instance) == [0, 2, 0]
    assert pack(SECOND[NFD_BIN_0], instance) == [1, 0, 1]
    assert rscore(instance, [1, 0, 1]) > rscore(instance, [0, 2, 0])


def test_first_fit_by_age_takes_the_bin_that_was_opened_first() -> None:
    instance = Instance([2.0, 3.0, 9.0, 1.0], [1, 1, 0, 0], 10.0)
    assert pack(DOCUMENT["FF"], instance) == [1, 1, 0, 0]
    assert pack(SECOND[FF_BY_AGE], instance) == [1, 1, 0, 1]


@given(st.sampled_from(NextFit))
def test_each_reading_has_twelve_algorithms_that_differ_only_in_next_fit(reading: NextFit) -> None:
    names = twelve(reading)
    assert len(names) == 12
    assert [name.removesuffix(" bin 0") for name in names] == list(DOCUMENT)
    assert sum(name in SECOND for name in names) == (2 if reading is NextFit.BIN_0 else 0)
