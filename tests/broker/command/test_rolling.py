"""A rolling restart, step by step: which endpoints have to end, and when."""

from __future__ import annotations

import pytest

from ingeborg.broker.command.rolling import READY_S, Rolling

END_S = 20.0


class Child:
    """An endpoint's process under the test's control."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.given_up = False
        self.is_ready = True
        self.runs = True
        self.told: list[str] = []

    def tell_to_end(self) -> bool:
        if self.runs:
            self.told.append("end")
        self.is_ready = False
        return self.runs

    def ready(self) -> bool:
        return self.is_ready

    def kill(self) -> None:
        self.told.append("kill")


class Story:
    """Three endpoints, and a clock."""

    def __init__(self) -> None:
        self.children = [Child(name) for name in "abc"]
        self.now = 1000.0
        self.rolling = Rolling(self.children, END_S)

    def passes(self, seconds: float = 0.1) -> None:
        self.now += seconds
        self.rolling.step(self.now)

    def ends(self, number: int) -> bool:
        return self.rolling.took(self.children[number], self.now)

    @property
    def told(self) -> list[list[str]]:
        return [child.told for child in self.children]


@pytest.fixture
def story(caplog: pytest.LogCaptureFixture) -> Story:
    caplog.set_level("INFO")
    return Story()


def test_each_is_told_to_end_when_the_one_before_it_is_ready_again(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    story.passes()
    assert story.told == [[], [], []]
    story.rolling.ask(story.now)
    for number in range(3):
        story.passes()
        assert story.told == [["end"] if each <= number else [] for each in range(3)]
        story.passes(END_S / 2)
        assert story.ends(number)
        story.passes(READY_S / 2)
        assert sum(map(len, story.told)) == number + 1
        story.children[number].is_ready = True
        story.passes()
    story.passes(100)
    assert story.told == [["end"]] * 3
    assert "all endpoints are restarted" in caplog.text


def test_none_is_told_to_end_while_another_is_not_ready_but_for_one_that_is_given_up(story: Story) -> None:
    story.children[2].is_ready = False
    story.children[1].given_up, story.children[1].is_ready = True, False
    story.rolling.ask(story.now)
    story.passes(READY_S / 2)
    assert story.told == [[], [], []]
    story.children[2].is_ready = True
    story.passes()
    assert story.told == [["end"], [], []]


def test_one_that_is_told_and_one_that_dies_by_itself_are_told_apart(story: Story) -> None:
    assert not story.ends(0)
    story.rolling.ask(story.now)
    story.passes()
    assert not story.ends(1)
    assert story.ends(0)
    assert not story.ends(0)  # its next life has ended as well


def test_one_that_has_ended_by_itself_is_waited_for_and_not_killed(story: Story) -> None:
    """As after an aborted restart: it is between two starts when the next restart begins."""
    first = story.children[0]
    first.runs = first.is_ready = False
    story.rolling.ask(story.now)
    story.passes()
    first.runs = True
    story.passes(READY_S / 2)
    assert story.told == [[], [], []]
    first.is_ready = True
    story.passes()
    story.passes()
    assert story.told == [[], ["end"], []]


def test_one_that_is_given_up_before_its_turn_is_passed_over(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    story.rolling.ask(story.now)
    story.passes()
    for child in story.children[1:]:
        child.given_up, child.is_ready = True, False
    assert story.ends(0)
    story.children[0].is_ready = True
    for _ in range(4):
        story.passes()
    assert story.told == [["end"], [], []]
    assert "all endpoints are restarted" in caplog.text


def test_one_that_does_not_end_is_killed(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    story.rolling.ask(story.now)
    story.passes()
    story.passes(END_S - 1)
    assert story.told[0] == ["end"]
    story.passes(1)
    assert story.told[0] == ["end", "kill"]
    assert "endpoint a has not ended within 20 s: killing it" in caplog.text
    assert story.ends(0)


@pytest.mark.parametrize("how", ["not ready in time", "given up"])
def test_it_is_broken_off_where_one_does_not_come_back(
    story: Story, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    story.rolling.ask(story.now)
    story.rolling.ask(story.now)
    story.passes()
    assert story.ends(0)
    story.children[0].given_up = how == "given up"
    story.passes(READY_S)
    said = "the supervisor gave up endpoint a" if how == "given up" else "endpoint a is not ready after 60 s"
    assert f"the restart has stopped: {said}" in caplog.text
    story.children[0].is_ready = True
    story.passes(100)
    assert story.told == [["end"], [], []]
    story.rolling.ask(story.now)  # repaired
    story.passes()
    assert story.told[0] == (["end"] if how == "given up" else ["end", "end"])


def test_it_is_broken_off_before_it_begins_where_another_is_not_ready(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    story.children[1].is_ready = False
    story.rolling.ask(story.now)
    story.passes(READY_S)
    assert "the restart has stopped: endpoint b is not ready" in caplog.text
    story.children[1].is_ready = True
    story.passes()
    assert story.told == [[], [], []]


def test_asked_again_meanwhile_all_are_restarted_once_more_after_it(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    story.rolling.ask(story.now)
    for _ in range(5):
        story.rolling.ask(story.now)
    for _ in range(2):
        for number in range(3):
            story.passes()
            assert story.ends(number)
            story.children[number].is_ready = True
            story.passes()
    story.passes()
    assert story.told == [["end"] * 2] * 3
    assert "restarting them again afterwards" in caplog.text
