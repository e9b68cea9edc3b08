"""The radio world, the recorded log, and their schedules: pure, so the tests check everything by value."""

from __future__ import annotations

import dataclasses
import gzip
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.loadgen.process.assignment import air_plan
from ingeborg.loadgen.workloads import popularity, replay, sizes
from ingeborg.loadgen.workloads.radio import AirPlan, Catalogue, Crowd, World, radio
from ingeborg.loadgen.workloads.schedule import Change, schedule
from ingeborg.loadgen.workloads.settings import WISH_EXPONENT_MAX, Replay, WorkloadError
from tests import wants

CROWD = Crowd(clients=60, listens=3, wishes=12.0, wish_exponent=0.8, idle_wishes=5, spread_s=0.2, seed=7)


def changed(crowd: Crowd, **fields: Any) -> Crowd:
    return dataclasses.replace(crowd, **fields)


def small_radio(crowd: Crowd = CROWD, **options: Any) -> World:
    return radio(crowd, **{"stations": 10, "songs": 200, "song_s": 3.0, "duration_s": 20.0, **options})


# -- the world


def test_the_same_seed_makes_the_same_world_and_another_another() -> None:
    assert small_radio() == small_radio()
    assert small_radio() != small_radio(changed(CROWD, seed=8))


def test_a_changed_option_does_not_shuffle_the_rest() -> None:
    other = small_radio(changed(CROWD, wishes=3.0, wish_exponent=0.0, idle_wishes=0))
    assert small_radio().schedule == other.schedule


@settings(max_examples=40)
@given(
    st.builds(
        Crowd,
        clients=st.integers(1, 30),
        listens=st.integers(1, 4),
        wishes=st.just(0.0),
        wish_exponent=st.floats(0, WISH_EXPONENT_MAX),
        idle_wishes=st.integers(0, 5),
        spread_s=st.floats(0, 0.9),
        seed=st.integers(),
    ),
    st.floats(0, 1),
    st.integers(4, 12),
)
def test_what_holds_in_every_world(crowd: Crowd, wishes_share: float, stations: int) -> None:
    crowd = changed(crowd, wishes=crowd.clients * wishes_share)
    world = radio(crowd, stations=stations, songs=60, song_s=1.0, duration_s=5.0)
    plan = world.schedule

    # News: by intended time, numbered per topic, all within the run.
    assert list(plan.news) == sorted(plan.news, key=lambda news: news.at_ns)
    seqs = defaultdict(list)
    for news in plan.news:
        seqs[news.topic].append(news.seq)
        assert 0 <= news.at_ns <= 5_000_000_000
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in seqs.values())
    assert len(seqs) == len(plan.topics) == len(set(plan.topics))

    # Reports: every listener once per news; the first one at the news' own time.
    by_news = defaultdict(list)
    for client, reports in enumerate(plan.reports):
        assert reports == sorted(reports)
        for report in reports:
            by_news[report.news].append((report.at_ns, report.first, client))
    assert set(by_news) == set(range(len(plan.news)))
    for number, told in by_news.items():
        news = plan.news[number]
        assert len({client for _, _, client in told}) == len(told) == news.reports
        assert [at_ns for at_ns, first, _ in told if first] == [news.at_ns] == [min(told)[0]]
        assert [client for _, first, client in told if first] == [news.client]
        assert news.others_ns == min((at_ns for at_ns, first, _ in told if not first), default=None)
        assert max(told)[0] - news.start_ms * 1_000_000 <= crowd.spread_s * 1e9 + 1_000_000

    # Every client listens to this many stations, so reports of a station come from that many clients.
    assert sum(map(len, plan.reports)) == sum(news.reports for news in plan.news)

    # Wishes: the given number of subscribers, no topic twice, idle ones never played.
    subscribers = Counter(topic for mine in world.wishes for topic in mine)
    assert [subscribers[topic] for topic in range(len(plan.topics))] == world.subscribers
    assert all(len(mine) == len(set(mine)) for mine in world.wishes)
    assert sum(world.subscribers) == pytest.approx(crowd.wishes * len(plan.topics), abs=1)
    assert all(not set(mine) & set(plan.topics) for mine in world.idle)
    assert world.expected == sum(world.subscribers[news.topic] for news in plan.news)

    # To the broker, no two news are one message.
    assert len({(plan.topics[news.topic], news.station, news.start_ms) for news in plan.news}) == len(plan.news)


@given(st.integers(0, 300), st.integers(1, 500), st.floats(0, 1), st.floats(0, WISH_EXPONENT_MAX))
def test_wish_counts_keep_the_mean_the_limit_and_the_order(
    songs: int, most: int, share: float, exponent: float
) -> None:
    counts = popularity.counts(songs, most * share, most, exponent)
    assert len(counts) == songs
    assert sum(counts) == pytest.approx(most * share * songs, abs=1)
    assert all(0 <= count <= most for count in counts)
    assert all(later <= earlier + 1 for earlier, later in pairwise(counts))  # + 1: rounding


def test_the_most_played_song_is_on_the_most_wish_lists() -> None:
    world = small_radio(songs=5)
    plays = Counter(news.topic for news in world.schedule.news)
    assert world.subscribers[plays.most_common(1)[0][0]] == max(world.subscribers)


def test_a_news_has_one_publisher_until_the_next_client_is_meant_to_report_it() -> None:
    world = small_radio()
    plan = AirPlan(world, sizes.parse("64"), 1)
    for news in world.schedule.news:
        others_ns = 10**12 if news.others_ns is None else news.others_ns
        assert plan.publisher(news.topic, news.seq, others_ns - 1) == news.client
        assert news.others_ns is None or plan.publisher(news.topic, news.seq, others_ns) is None


def test_a_larger_exponent_gives_the_top_songs_more_lists_and_0_gives_each_as_many() -> None:
    tops = [max(small_radio(changed(CROWD, wish_exponent=exponent)).subscribers) for exponent in (0.0, 0.4, 0.8)]
    assert 12 == tops[0] < tops[1] < tops[2]
    even = small_radio(changed(CROWD, wish_exponent=0.0))
    assert set(even.subscribers) == {12}
    assert even.expected == 12 * len(even.schedule.news)  # the same for rare and frequent songs
    uneven = small_radio(changed(CROWD, wishes=2.5, wish_exponent=0.0))
    assert set(uneven.subscribers) == {2, 3}


def test_a_station_that_nobody_hears_makes_no_news() -> None:
    changes = [Change(1.0, "heard", "a", 1000), Change(2.0, "unheard", "b", 2000)]
    plan = schedule(changes, {"heard": [0], "unheard": []}, 1, 0.0, Random(1))
    assert (plan.topics, plan.unheard) == (["a"], 1)


@pytest.mark.parametrize(
    ("crowd", "options", "text"),
    [
        ({"clients": 0, "wishes": 0}, {}, "--clients"),
        ({"wishes": 61}, {}, "from 0 to the number of clients, 60"),
        ({"listens": 11}, {}, "--listens"),
        ({"spread_s": 30.0}, {}, "--spread-ms"),
        ({}, {"stations": 0}, "--stations"),
        ({}, {"song_s": float("nan")}, "--song-s"),
        ({}, {"duration_s": 0.5}, "--duration"),
    ],
)
def test_options_that_make_no_world_are_named(crowd: dict[str, Any], options: dict[str, Any], text: str) -> None:
    with pytest.raises(WorkloadError, match=text):
        small_radio(changed(CROWD, **crowd), **options)


def test_the_catalogue_is_a_sequence_of_different_names() -> None:
    catalogue = Catalogue(1_000_000)
    assert len(set(catalogue[:1000])) == 1000
    with pytest.raises(IndexError):
        catalogue[1_000_000]


# -- the recorded log


def log_file(tmp_path: Path, text: str, *, packed: bool = False) -> Path:
    path = tmp_path / "log.csv"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


HEADER = "station,offset_s,artist,track,duration_s\n"


@pytest.mark.parametrize("packed", [False, True])
def test_reads_text_as_it_is_and_counts_what_it_leaves_out(tmp_path: Path, packed: bool) -> None:
    text = (
        HEADER
        + 's1,0,rÃƒÂ©gresser,"Womb, ""live""",179\n'
        + "s1,2.5,Control,a\x07b,1\n"
        + f"s1,3,Long,{'é' * 600},1\n"
        + "s2,4,A,B,0\ns2,4,A,B,0\n"
    )
    log = replay.read(log_file(tmp_path, text, packed=packed))
    assert log.rows == [(0, "s1", 'rÃƒÂ©gresser - Womb, "live"'), (4000, "s2", "A - B")]
    assert sorted(log.skipped.values()) == [1, 1, 1]
    assert any("U+0007" in reason for reason in log.skipped)


def test_plays_the_chosen_part_at_the_chosen_speed(tmp_path: Path) -> None:
    rows = "".join(f"s{number % 3},{number * 10},artist {number},t,1\n" for number in range(100))
    log = replay.read(log_file(tmp_path, HEADER + rows))
    crowd = changed(CROWD, spread_s=0.0)
    world = replay.replay(log, crowd, stations=3, start_s=100.0, speed=20.0, duration_s=10.0)
    assert [(news.at_ns, news.start_ms) for news in world.schedule.news] == [
        ((start_s - 100) * 10**9 // 20, start_s * 1000) for start_s in range(100, 300, 10)
    ]
    with pytest.raises(WorkloadError, match="no change from second 5000"):
        replay.replay(log, crowd, stations=3, start_s=5000.0, speed=1.0, duration_s=10.0)
    with pytest.raises(WorkloadError, match="--speed"):
        replay.replay(log, crowd, stations=3, start_s=0.0, speed=0.0, duration_s=10.0)


@pytest.mark.parametrize(
    ("begin", "hint"),
    [
        (86_400, ""),
        (1_700_000_000, ""),
        (1_700_000_000_000, " (this looks like milliseconds since 1970: offset_s is in seconds)"),
    ],
)
def test_where_nothing_is_played_the_log_is_said_to_begin_and_end(tmp_path: Path, begin: int, hint: str) -> None:
    log = replay.read(log_file(tmp_path, HEADER + "".join(f"s,{begin + late},a,t{late},1\n" for late in range(50))))
    crowd = changed(CROWD, listens=1, spread_s=0.0)
    with pytest.raises(WorkloadError) as caught:
        replay.replay(log, crowd, stations=1, start_s=0.0, speed=180.0, duration_s=20.0)
    assert str(caught.value) == (
        f"the log has no change from second 0 to 3600: it begins at second {begin} and ends at {begin + 49}; see "
        f"--start-s and --speed{hint}"
    )
    played = replay.replay(log, crowd, stations=1, start_s=float(begin), speed=180.0, duration_s=20.0)
    assert len(played.schedule.news) == 50


def test_a_row_needs_an_artist_or_a_track(tmp_path: Path) -> None:
    rows = "s,1,Artist,,1\ns,2,,Track,1\ns,3,,,1\ns,4, ,\t,1\ns,5,A,B,1\n"
    log = replay.read(log_file(tmp_path, HEADER + rows))
    assert [row.topic for row in log.rows] == ["Artist", "Track", "A - B"]
    assert log.skipped == {"Neither artist nor track": 2}
    with pytest.raises(WorkloadError, match=r"has no row that can be played; 1 rows: Neither artist nor track$"):
        replay.read(log_file(tmp_path, HEADER + "s,3,,,1\n"))


@pytest.mark.parametrize("exponent", [0.0, 0.8])
def test_wish_lists_of_a_replay_have_the_exponent_too(tmp_path: Path, exponent: float) -> None:
    rows = "".join(f"s{number % 3},{number},artist {number % 20},t,1\n" for number in range(100))
    made = Replay(
        log=str(log_file(tmp_path, HEADER + rows)), clients=20, wishes=5.0, stations=3, wish_exponent=exponent
    )
    plan = air_plan(made)
    lists = {plan.expected(topic) for topic in range(len(plan.topics))}
    assert (lists == {5}) is (exponent == 0)


def test_the_real_log_is_playable_whole() -> None:
    path = Path(__file__).parents[4] / "shared/data/nowplaying.csv.gz"
    if not path.exists():
        wants.skip("the recorded log", "not beside this checkout (../shared/data)")
    log = replay.read(path)
    assert (len(log.rows), log.skipped.total()) == (134_943, 0)
    assert any("rÃƒÂ©gresser - Womb" in row.topic for row in log.rows)
    world = replay.replay(log, CROWD, stations=951, start_s=0.0, speed=180.0, duration_s=20.0)
    assert world.expected > 0
