"""Without these tests, slow work could delay the figure or run for a value that the slider has already left."""

import asyncio

import pytest
from ipywidgets import IntSlider

from transformer_lab.errors import InputError
from transformer_lab.plots.figures import new_picture
from transformer_lab.plots.interactive_figure import PAUSE, REST, Explorer


def measuring(measure, known=()):
    """Return an explorer with one slider. Its figure says whether `measure` has been called for the current value."""
    slider, known = IntSlider(0, 0, 9, description="value"), set(known)

    def rest(value):
        measure(value)
        known.add(value)

    def draw(value):
        figure = new_picture(f"{value} {'measured' if value in known else 'open'}", 0.5, 0.5)
        return figure if value in known else (figure, lambda: rest(value))

    return Explorer({"value": slider}, draw), slider


def seen(explorer):
    """Return a list that collects all alt text from now on."""
    pictures = []
    explorer.picture.observe(lambda change: pictures.append(change["new"].split('alt="')[1].split('"')[0]), "value")
    return pictures


def test_without_an_event_loop_every_picture_is_finished():
    measured = []
    explorer, slider = measuring(measured.append)
    assert 'alt="0 measured"' in explorer.picture.value
    slider.value = 3
    assert 'alt="3 measured"' in explorer.picture.value
    assert measured == [0, 3]


def test_the_picture_comes_before_the_slow_work_and_again_after_it():
    measured = []

    async def move():
        explorer, slider = measuring(measured.append)
        pictures = seen(explorer)
        slider.value = 3
        while len(pictures) < 2:
            await asyncio.sleep(PAUSE)
        slider.value = 0  # 0 was measured before
        await asyncio.sleep(PAUSE + 2 * REST)
        return pictures

    assert asyncio.run(asyncio.wait_for(move(), 30)) == ["3 open", "3 measured", "0 measured"]
    assert measured == [0, 3]


def test_slow_work_is_skipped_for_a_position_that_the_slider_has_left():
    measured = []

    async def move():
        explorer, slider = measuring(measured.append)
        pictures = seen(explorer)
        slider.value = 3
        while not pictures:
            await asyncio.sleep(0)
        slider.value = 4
        while len(pictures) < 3:
            await asyncio.sleep(PAUSE)
        return pictures

    assert asyncio.run(asyncio.wait_for(move(), 30)) == ["3 open", "4 open", "4 measured"]
    assert measured == [0, 4]


def test_an_error_of_the_slow_work_is_raised_at_first_and_shown_later():
    def refuse(value):
        raise InputError(f"{value} cannot be <measured>")

    with pytest.raises(InputError, match="0 cannot"):
        measuring(refuse)

    async def move():
        explorer, slider = measuring(refuse, known=[0])
        slider.value = 3
        while not explorer.picture.value.startswith("<p>"):
            await asyncio.sleep(PAUSE)
        return explorer.picture.value

    assert asyncio.run(asyncio.wait_for(move(), 30)) == "<p>3 cannot be &lt;measured&gt;</p>"
