"""Without these tests, a figure could be cut off, change from run to run, or lack alt text."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import same_color
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.text import Text
from PIL import Image

from transformer_lab import plots
from transformer_lab.errors import InputError
from transformer_lab.plots import draw_architecture, draw_attention, new_picture, save_figure
from transformer_lab.plots.figures import as_png, page_axes


def test_no_exported_name_is_hidden_by_a_module():
    """Importing a module `plots.influence` would set that attribute and so hide a function with the same name."""
    modules = {path.stem for path in Path(plots.__file__).parent.glob("*.py")}
    assert modules & set(plots.__all__) == set()
    assert plots.MODULES.keys() <= modules
    assert all(getattr(plots, name) is not None for name in plots.__all__)
    with pytest.raises(AttributeError, match="no attribute 'draw_nothing'"):
        plots.draw_nothing  # noqa: B018 - the access is the test


def test_a_png_has_the_size_of_the_figure_and_its_text(tmp_path, translator):
    figure = draw_attention(translator, "Ein Hund rennt")
    save_figure(figure, tmp_path / "new folder" / "map.PNG")
    with Image.open(tmp_path / "new folder" / "map.PNG") as image:
        assert image.size == pytest.approx([192 * side for side in figure.get_size_inches()], abs=1)  # whole pixels
        assert image.text["Description"] == figure.get_label()


def test_an_svg_keeps_its_tokens_as_text_and_is_the_same_each_time(tmp_path, translator):
    for name in ("one.svg", "two.svg"):
        save_figure(draw_attention(translator, "Ein Hund rennt"), tmp_path / name)
    text = (tmp_path / "one.svg").read_text(encoding="utf-8")
    for token in ("▁Hund", "&lt;eos&gt;", "▁dog"):
        assert re.search(rf"<text[^>]*>{token}</text>", text)
    assert text == (tmp_path / "two.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["map.jpg", "map", "png"])
def test_another_suffix_is_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(InputError, match=rf"cannot save a picture as {name}: end its name in \.png or \.svg"):
        save_figure(new_picture("nothing", 1, 1), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*file/map\.png \(") as caught:
        save_figure(new_picture("nothing", 1, 1), tmp_path / "file" / "map.png")
    assert "\n" not in str(caught.value)


def test_a_picture_that_cannot_be_finished_leaves_the_old_one(tmp_path, monkeypatch):
    """A full disk must not destroy the previous run's figure."""
    save_figure(new_picture("nothing", 1, 1), tmp_path / "map.png")
    before = (tmp_path / "map.png").read_bytes()

    def disk_is_full(self, path, **_):
        Path(path).write_bytes(before[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", disk_is_full)
    with pytest.raises(InputError, match=r"cannot write .*map\.png \(No space left on device\)"):
        save_figure(new_picture("nothing", 1, 1), tmp_path / "map.png")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"map.png": before}


def test_a_notebook_shows_the_picture_with_its_alternative_text():
    from IPython.core.formatters import DisplayFormatter

    shown, _ = DisplayFormatter().format(new_picture('a "dog" & <eos>', 2, 1))
    assert shown["text/html"].startswith('<img alt="a &quot;dog&quot; &amp; &lt;eos&gt;" width="192" ')
    assert "data:image/png;base64,iVBOR" in shown["text/html"]


def as_shown(figure, page):
    """Return a figure's pixels as they would appear in a notebook on a gray page."""
    with Image.open(io.BytesIO(base64.b64decode(as_png(figure)))) as image:
        return np.asarray(Image.alpha_composite(Image.new("RGBA", image.size, (page, page, page, 255)), image))[..., :3]


def contrast(gray, other):
    """Return the contrast of two grays from 0 to 255, as WCAG 2 defines it."""
    low, high = sorted(((value / 255 + 0.055) / 1.055) ** 2.4 for value in (max(gray, 11), max(other, 11)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", [0x11, 0xFF])
def test_ink_is_legible_in_light_and_dark_and_areas_keep_their_colors(page):
    figure = new_picture("a line, a box with a line in it, and a line of a grid", 2, 1)
    axes = page_axes(figure)
    axes.add_patch(Rectangle((1, 0), 1, 1, facecolor="#deebf7"))
    axes.plot([0.2, 0.8], [0.5, 0.5], color="black", linewidth=3)
    axes.plot([1.2, 1.8], [0.5, 0.5], color="black", linewidth=3)
    axes.plot([0.2, 0.8], [0.8, 0.8], color="0.92", linewidth=3)
    pixels = as_shown(figure, page)
    assert set(pixels[10, 10]) == {page}
    assert contrast(pixels[48, 48, 0], page) > 4
    assert list(pixels[20, 144]) == [0xDE, 0xEB, 0xF7]
    assert pixels[48, 144].max() == 0
    assert 1.0 < contrast(pixels[77, 48, 0], page) < 1.3


@pytest.mark.parametrize("highlight", [(), (5,), (1, 6, 9)])
def test_the_architecture_names_every_notebook_and_no_text_covers_another(highlight, cut_off):
    figure = draw_architecture(highlight)
    assert cut_off(figure) == []
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    named = {int(number) for text in texts for number in re.findall(r"\b\d\d\b", text.get_text())}
    assert named == {1, 2, 3, 4, 5, 6, 7, 8, 9, 11}
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    covering = [
        (first, second)
        for index, (first, box) in enumerate(boxes)
        for second, other in boxes[index + 1 :]
        if box.overlaps(other)
    ]
    assert covering == []


def test_the_highlighted_parts_and_no_others_are_dark():
    from transformer_lab.plots.architecture import BOXES, LIT

    figure = draw_architecture([5])
    dark = [patch for patch in figure.findobj(FancyBboxPatch) if same_color(patch.get_facecolor(), LIT)]
    assert len(dark) == sum(5 in notebooks for _, _, notebooks, _, _ in BOXES) == 7
