"""Without these tests, a page could omit a head, swap the axes of a map, or run code from a sentence."""

import base64
import io
import re

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from transformer_lab.plots.page import attention_page

SENTENCE = 'Ein <script>alert("Hund")</script> rennt'


@pytest.fixture
def page(translator) -> str:
    translator.translate = lambda sentences: ["A dog <img src=x>"]
    return attention_page(translator, SENTENCE)


def test_every_head_is_on_the_page_once_and_once_enlarged(page):
    assert len(re.findall(r'<a class="small"', page)) == 3 * 2 * 3  # stacks, layers, heads
    addresses = re.findall(r'<section class="large" id="([^"]+)"', page)
    assert len(set(addresses)) == len(addresses) == 18
    assert set(re.findall(r'href="#([^"]+)"', page)) == set(addresses)  # every link has a target


def test_a_pixel_is_a_weight_and_its_row_a_query(translator, page):
    recorded, source, target = translator.attention(SENTENCE)
    section = page.split('id="cross-1-2"')[1]
    data = re.search(r'<img alt="Heat map: Cross-attention, layer 1, head 2\..*?base64,([^"]+)"', section)[1]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
    weights = recorded["decoder.layers.1.cross_attention"][0, 2].numpy()
    assert pixels.shape == (len(target), len(source), 3)
    assert np.abs(pixels / 255 - colormaps["Blues"](weights)[..., :3]).max() < 0.01
    queries = re.search(r'<div class="queries">(.*?)</div>', section)[1]
    assert re.findall(r"<span>(.*?)</span>", queries) == ["&lt;bos&gt;", *target[1:]]


def test_the_page_runs_nothing_and_fetches_nothing(page):
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)
