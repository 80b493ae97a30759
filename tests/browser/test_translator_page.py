"""Use the page as visitors do: with a mouse, a keyboard, or a phone, in dark mode, without JavaScript, or offline."""

import contextlib
import re

import pytest
import torch

from transformer_lab.data import BpeTokenizer, SpacyTokenizer
from transformer_lab.decoding import Translator, load_pretrained
from transformer_lab.decoding.page_export import FIRST_SENTENCES, export_page, write_translator
from transformer_lab.decoding.translator import PRETRAINED
from transformer_lab.errors import InputError
from transformer_lab.model import Transformer, TransformerConfig

LONG = (
    "Ein Mann mit einem orangefarbenen Hut, der auf einer Leiter steht, streicht das Fenster eines alten Hauses, "
    "während zwei Kinder in roten Jacken mit einem Ball spielen."
)
# Find the text with the lowest contrast against its background, and that contrast.
LOWEST_CONTRAST = """
() => {
    const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = color => {
        context.clearRect(0, 0, 1, 1);
        context.fillStyle = color;
        context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data];
    };
    const luminance = color => {
        const [r, g, b] = color.map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = node => {
        for (; node; node = node.parentElement ?? node.getRootNode().host) {
            const color = rgba(getComputedStyle(node).backgroundColor);
            if (color[3]) return color;
        }
        throw new Error("no background");
    };
    const root = document.getElementById("translator").shadowRoot;
    const texts = [...root.querySelectorAll("*"), ...document.body.querySelectorAll("h1, p")].filter(node =>
        [...node.childNodes].some(child => child.nodeType === Node.TEXT_NODE && child.data.trim())
        && !node.closest(".unseen, style") && node.getClientRects().length);
    return texts.map(node => {
        const lights = [rgba(getComputedStyle(node).color), behind(node)].map(luminance).sort((a, b) => b - a);
        return [(lights[0] + 0.05) / (lights[1] + 0.05), node.textContent.trim()];
    }).sort(([a], [b]) => a - b)[0];
}
"""


@pytest.fixture(scope="module")
def translator():
    return load_pretrained()


def written(page, sentence, translator):
    """Wait until the sentence is fully translated, and return the translation."""
    from playwright.sync_api import expect

    expect(page.get_by_label("Type a sentence in German")).to_have_value(sentence)
    expect(page.get_by_role("status")).to_contain_text("Translation: ", timeout=30_000)
    expected = translator.translate([sentence], beam_size=1)[0]
    assert re.sub(r"\s", "", page.locator(".target").inner_text()) == re.sub(r"\s", "", expected) + "end"
    return expected


@pytest.fixture
def visit(browser, translator_address, translator):
    """Open the page in a window with these settings and wait for its first translation: `visit(**settings)`."""
    with contextlib.ExitStack() as stack:

        def open_page(address=translator_address, **settings):
            context = stack.enter_context(contextlib.closing(browser.new_context(**settings)))
            page = context.new_page()
            page.errors = []
            page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: page.errors.append(str(error)))
            page.goto(address)
            written(page, FIRST_SENTENCES["de"], translator)
            return page

        yield open_page


def test_a_word_shows_what_it_attended_to(visit, screenshot):
    """Hovering shows a word's attention temporarily and clicking pins it, in both languages and for every head."""
    page = visit()
    status, dog = page.get_by_role("status"), page.locator(".target button", has_text="dog")
    dog.hover()
    assert re.search(r"To write dog, the model looked at Hund \(\d\d%\)", status.inner_text())
    page.mouse.move(0, 0)
    assert "Point at a word" in status.inner_text()
    dog.click()
    page.mouse.move(0, 0)
    assert "To write dog" in status.inner_text()
    assert page.locator("[aria-pressed=true]").all_inner_texts() == ["dog"]
    assert page.locator("tr.marked th").inner_text() == "dog"
    screenshot(page, "pinned")
    before = status.inner_text(), page.locator("svg .lit").first.get_attribute("d")
    page.get_by_role("radio", name="layer 1, head 3").check()
    assert page.get_by_role("heading", name="Layer 1, head 3").is_visible()
    assert (status.inner_text(), page.locator("svg .lit").first.get_attribute("d")) != before
    page.locator(".source button", has_text="Hund").click()
    assert "Hund was looked at while" in status.inner_text()
    dog.click()
    dog.click()
    page.mouse.move(0, 0)
    assert page.locator("[aria-pressed=true]").count() == 0
    assert page.errors == []


def test_the_page_shows_the_models_attention_weights(visit, translator):
    """The rows of the heat map sum to 1, and the weight of a word is the sum of the weights of its tokens."""
    page = visit()
    page.get_by_label("Type a sentence in German").fill("Zwei Straßenmusikanten streichen.")
    page.get_by_role("button", name="Translate").click()
    written(page, "Zwei Straßenmusikanten streichen.", translator)
    weights = """rows => rows.map(row =>
        [...row.querySelectorAll("td")].map(cell => +cell.style.getPropertyValue("--weight")))"""
    by_word = torch.tensor(page.locator("tbody tr").evaluate_all(weights))
    columns = page.locator("thead th").all_inner_texts()
    assert columns == ["Zwei", "Straßenmusikanten", "streichen", ".", "end"]
    torch.testing.assert_close(by_word.sum(dim=1), torch.ones(len(by_word)), rtol=0, atol=1e-3)
    page.get_by_label("split words").check()
    by_token = torch.tensor(page.locator("tbody tr").evaluate_all(weights))
    recorded, source_tokens, target_tokens = translator.attention(
        "Zwei Straßenmusikanten streichen.", translator.translate(["Zwei Straßenmusikanten streichen."], beam_size=1)[0]
    )
    expected = recorded["decoder.layers.2.cross_attention"][0].mean(dim=0)
    assert by_token.shape == (len(target_tokens), len(source_tokens))
    torch.testing.assert_close(by_token, expected, rtol=0, atol=1e-3)
    assert len(source_tokens) > len(columns)


def test_the_page_works_with_the_keyboard_alone(visit, translator):
    page = visit(reduced_motion="reduce")
    page.keyboard.press("Tab")
    page.keyboard.insert_text("Zwei Kinder spielen.")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("Zwei Kinder spielen.")
    page.keyboard.press("Enter")
    written(page, "Zwei Kinder spielen.", translator)
    focused = "document.querySelector('#translator').shadowRoot.activeElement.textContent"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate(focused) == "Two":
            break
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == "children"
    assert "To write children" in page.get_by_role("status").inner_text()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")  # moves to the layers and heads
    assert page.locator("[aria-pressed=true]").all_inner_texts() == ["children"]
    page.keyboard.press("ArrowLeft")
    assert page.get_by_role("heading", name="Layer 2, head 4").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1024])
def test_everything_is_legible(visit, translator, screenshot, scheme, width):
    """WCAG AA requires a contrast of 4.5 to 1 for all text, including words on the strongest tint. The page must
    not scroll sideways."""
    page = visit(viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce")
    page.locator(".target button").nth(2).click()
    page.wait_for_timeout(300)  # wait for the tint to fade in
    contrast, text = page.evaluate(LOWEST_CONTRAST)
    assert contrast >= 4.5, text
    screenshot(page, "short")
    page.get_by_label("Type a sentence in German").fill(LONG)
    page.get_by_role("button", name="Translate").click()
    written(page, LONG, translator)
    screenshot(page, "long")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    box = page.locator("textarea").evaluate("box => [box.scrollHeight, box.clientHeight]")
    assert box[0] <= box[1]  # the whole sentence is visible


def test_a_sentence_that_cannot_be_translated_gets_a_message(visit):
    page = visit()
    for sentence, answer in {"你好": "none of these characters", "Hund " * 256: "at most 256"}.items():
        page.get_by_label("Type a sentence in German").evaluate("(box, value) => box.value = value", sentence)
        page.get_by_role("button", name="Translate").click()
        assert answer in page.get_by_role("status").inner_text()


def test_a_picture_is_shown_without_javascript(browser, translator_address, translator, screenshot):
    with contextlib.closing(browser.new_context(java_script_enabled=False)) as context:
        page = context.new_page()
        page.goto(translator_address)
        words = page.locator("svg text").all_text_contents()
        screenshot(page, "still")
        assert page.locator("noscript p").is_visible()
        assert page.locator("svg path").count() >= 8
    sentence = FIRST_SENTENCES["de"]
    both = sentence + translator.translate([sentence], beam_size=1)[0]
    assert "".join(words) == both.replace(" ", "")


def test_the_page_sends_no_data_and_loads_little(browser, translator_address, translator, tmp_path):
    """The page makes requests only to its own server, loads less than 12 MB in total, and loads nothing more after a
    sentence is typed."""
    requests = []
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        page.on("request", lambda request: requests.append((request.method, request.url)))
        page.goto(translator_address)
        written(page, FIRST_SENTENCES["de"], translator)
        loaded = len(requests)
        page.get_by_label("Type a sentence in German").fill("Zwei Hunde.")
        page.get_by_role("button", name="Translate").click()
        written(page, "Zwei Hunde.", translator)
    assert len(requests) == loaded
    assert all(method == "GET" and url.startswith((translator_address, "data:")) for method, url in requests)
    write_translator(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 12e6


@pytest.fixture(scope="module")
def own_model(tmp_path_factory):
    """Return the folder of an untrained model."""
    tokenizer = BpeTokenizer.train([("Ein Hund läuft.", "A dog runs.")] * 3, vocab_size=540)
    sizes = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8, "max_length": 60}
    folder = tmp_path_factory.mktemp("own") / "my model"
    model = Transformer(TransformerConfig(tokenizer.source_size, tokenizer.target_size, **sizes))
    Translator(model, tokenizer).save(folder)
    return folder


DROP = """
([card, files]) => {
    const transfer = new DataTransfer();
    for (const [name, content] of files) {
        transfer.items.add(new File([Uint8Array.from(atob(content), character => character.charCodeAt())], name));
    }
    card.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
}
"""


def test_choosing_your_own_model(visit, own_model):
    page = visit(reduced_motion="reduce")
    page.locator("input[type=file]").set_input_files(sorted(own_model.iterdir()))
    page.get_by_text("thousand parameters.").wait_for()
    assert page.get_by_role("radio").count() == 4  # two heads, their mean, and the mean over all layers
    expected = Translator.load(own_model).translate([FIRST_SENTENCES["de"]], beam_size=1)[0]
    shown = "".join(page.locator(".target button:not(.end)").all_inner_texts())
    assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", expected)


def test_dropping_your_own_model_on_the_page(visit, own_model):
    import base64

    page = visit(reduced_motion="reduce")
    files = [[path.name, base64.b64encode(path.read_bytes()).decode()] for path in own_model.iterdir()]
    card = page.locator(".card").element_handle()
    page.evaluate(DROP, [card, files[:2]])
    assert "missing" in page.get_by_role("status").inner_text()
    page.evaluate(DROP, [card, files])
    page.get_by_text("thousand parameters.").wait_for()
    damaged = [[name, content[:400] if name == "weights.safetensors" else content] for name, content in files]
    page.evaluate(DROP, [card, damaged])
    page.get_by_text("weights.safetensors is damaged").wait_for()


def test_an_exported_page_opens_from_a_file_without_requests(visit, translator, tmp_path, screenshot):
    export_page(translator, tmp_path / "mine.html", PRETRAINED / "training.json")
    page = visit(f"file://{tmp_path / 'mine.html'}", offline=True)
    assert page.get_by_text("2.4 million parameters, trained in 27 minutes on one core of a CPU").is_visible()
    screenshot(page, "exported")
    assert page.errors == []


def test_exporting_a_model_too_short_for_the_example(browser, own_model, tmp_path):
    """If the example is longer than `max_length`, the page asks for a sentence instead of showing a still picture."""
    translator = Translator.load(own_model)
    translator.model.config.max_length = 20
    export_page(translator, tmp_path / "short.html")
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(f"file://{tmp_path / 'short.html'}")
        page.get_by_text("at most 20").wait_for()
        page.get_by_role("radio").last.check()
        assert page.locator("#translator > svg").count() == 0


def test_a_model_with_the_spacy_tokenizer_is_rejected(tmp_path):
    tokenizer = SpacyTokenizer.train([("Ein Hund läuft.", "A dog runs.")] * 3)
    config = TransformerConfig(tokenizer.source_size, tokenizer.target_size, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    with pytest.raises(InputError, match="--tokenizer bpe"):
        export_page(Translator(Transformer(config), tokenizer), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []
