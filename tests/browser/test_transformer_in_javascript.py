"""In a real browser, the page's Transformer must produce the same tokens, logits, and weights as the Python model."""

import base64
import json

import numpy as np
import pytest
import torch

from transformer_lab.data import BpeTokenizer, load_corpus
from transformer_lab.decoding import Translator, greedy_decode, load_pretrained
from transformer_lab.decoding.translator import PRETRAINED
from transformer_lab.model import Transformer, TransformerConfig, record_attention

TRANSLATE_ALL = """
async sentences => {
    const source = `
        import { loadModel } from "${new URL("transformer.js", location.href)}";
        const get = name => fetch(new URL(name, "${location.href}"));
        onmessage = async ({ data: sentences }) => {
            const { model, tokenizer } = loadModel(await (await get("config.json")).json(),
                await (await get("tokenizer.json")).json(), await (await get("weights.safetensors")).arrayBuffer());
            postMessage(sentences.map(sentence =>
                [...model.translate(tokenizer.encodeSource(sentence))].map(({ token }) => token)));
        };`;
    const script = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const work = sentences => new Promise((resolve, reject) => {
        const worker = new Worker(script, { type: "module" });
        worker.onmessage = ({ data }) => resolve(data);
        worker.onerror = event => reject(new Error(event.message));
        worker.postMessage(sentences);
    });
    const share = Math.ceil(sentences.length / navigator.hardwareConcurrency), shares = [];
    for (let start = 0; start < sentences.length; start += share) shares.push(sentences.slice(start, start + share));
    return (await Promise.all(shares.map(work))).flat();
}
"""
PAIRS = [
    ("Ein Hund läuft – schnell! – über 12 Wiesen.", "A dog runs – fast! – across 12 meadows."),
    ("Zwei Mädchen spielen im Café.", "Two girls play in the café."),
    ("Straße, Größe, Füße", "street, size, feet"),
] * 5
CHINESE_PAIRS = [
    ("两只狗在 草地上奔跑。3只", "Two dogs run on the grass."),
    ("一个男人和3个孩子", "A man and 3 children"),
] * 5
ODD_SENTENCES = [
    "Ein  Hund\tläuft\u00a0weg\u2003.\x1c",
    "Cafe\u0301 ﬁ Å ½ x² 1.000,5 €",
    "👩‍👩‍👧 naïve Ελληνικά עברית हिन्दी 👍🏽",
    "<eos> ▁x <0x41> \ufeffä\ufeff",
    "两只 狗，在草地上 ABC 奔跑 。 3 只々〇⺀ ｘ",
    "狗 dog 狗dog狗",
    "a\u200bb  —«Ja»…",
]


@pytest.fixture(scope="module")
def translator():
    return load_pretrained()


@pytest.fixture
def compute(page, translator_address):
    """Run a JavaScript function body that can use `model`, `tokenizer`, and `argument`, and return its result:
    `compute(body, folder, argument)`."""
    page.goto(translator_address + "still.svg")  # a page without scripts on the same server

    def evaluate(body, folder, argument):
        config, tokenizer = (json.loads((folder / name).read_bytes()) for name in ("config.json", "tokenizer.json"))
        weights = base64.b64encode((folder / "weights.safetensors").read_bytes()).decode()
        script = """async ([config, state, weights, argument]) => {
            const { loadModel } = await import(new URL("transformer.js", location.href));
            const buffer = Uint8Array.from(atob(weights), character => character.charCodeAt()).buffer;
            const { model, tokenizer } = loadModel(config, state, buffer);
            %s
        }"""
        return page.evaluate(script % body, [config, tokenizer, weights, argument])

    return evaluate


def same_greedy_tokens(page, address, translator, sentences):
    page.goto(address)
    generated = page.evaluate(TRANSLATE_ALL, sentences)
    eos = translator.model.config.eos_id
    assert [ids[:-1] if ids[-1] == eos else ids for ids in generated] == translator.search(sentences, 1, 0.0, None)


def test_the_same_greedy_tokens_for_all_of_test2016(page, translator_address, translator, real_data):
    corpus = load_corpus("multi30k", data_dir=real_data)
    assert len(corpus.test) == 1000
    same_greedy_tokens(page, translator_address, translator, [german for german, _ in corpus.test])


def test_the_same_greedy_tokens_for_captions(page, translator_address, translator):
    """The captions ship with the package, so this test runs on every machine."""
    sentences = [german for german, _ in load_corpus("captions").test[:100]]
    same_greedy_tokens(page, translator_address, translator, sentences)


def test_the_same_weights(compute, translator):
    sentences = [german for german, _ in load_corpus("captions").test[:20]]
    sentences += ["Ein Hund.", "Ein Mann mit Hut, der 3 Bälle wirft, während 🎈 über ihm schweben!"]
    found = compute(
        """return argument.map(sentence => [...model.translate(tokenizer.encodeSource(sentence))].map(
            ({ attention }) => attention.map(heads => heads.map(row => [...row]))));""",
        PRETRAINED,
        sentences,
    )
    for sentence, weights in zip(sentences, found, strict=True):
        source = torch.tensor(translator.encode([sentence]))
        target = torch.tensor([[1, *translator.search([sentence], 1, 0.0, None)[0]]])
        with torch.no_grad(), record_attention(translator.model) as recorded:
            translator.model(source, target)
        expected = torch.stack([recorded[f"decoder.layers.{layer}.cross_attention"][0] for layer in range(4)])
        expected = expected.permute(2, 0, 1, 3)  # (target, layer, head, source), as on the page
        np.testing.assert_allclose(np.array(weights), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["joint", "separate", "Chinese byte pairs", "Chinese characters"])
def test_the_same_source_tokens_and_texts(page, translator_address, kind, tmp_path):
    if kind == "separate":
        tokenizer = BpeTokenizer.train(PAIRS, vocab_size=540, shared_vocabulary=False)
    elif kind == "joint":
        tokenizer = BpeTokenizer.train(PAIRS, vocab_size=560)
    else:
        chinese = "characters" if kind == "Chinese characters" else "byte_pairs"
        tokenizer = BpeTokenizer.train(CHINESE_PAIRS, "zh", "en", vocab_size=540, chinese=chinese)
    sentences = ODD_SENTENCES + [text for pair in (*PAIRS[:3], *CHINESE_PAIRS[:2]) for text in pair]
    targets = [ids[1:-1] for ids in tokenizer.encode_targets(sentences)]
    targets += [[ids[0], *ids[2:]] for ids in targets]  # some of these bytes aren't UTF-8
    tokenizer.save(tmp_path)
    state = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    page.goto(translator_address + "still.svg")
    sources, texts = page.evaluate(
        """async ([state, sentences, targets]) => {
            const { Tokenizer } = await import(new URL("transformer.js", location.href));
            const tokenizer = new Tokenizer(state);
            return [sentences.map(text => tokenizer.encodeSource(text)), targets.map(ids => tokenizer.decode(ids))];
        }""",
        [state, sentences, targets],
    )
    assert sources == tokenizer.encode_sources(sentences)
    assert texts == [tokenizer.decode(ids) for ids in targets]


@pytest.mark.parametrize(
    ("half", "joint", "fields"),
    [
        (False, True, {"norm_first": False, "tie": True}),
        (False, False, {"norm_first": True, "tie": False, "n_layers": 1}),
        (True, False, {"norm_first": False, "tie": False, "n_heads": 1}),
    ],
)
def test_the_same_logits_from_models_of_other_shapes(compute, tmp_path, half, joint, fields):
    """Cover post-norm and pre-norm, tied and untied weights, joint and separate vocabularies, and sizes that are not
    multiples of four."""
    tokenizer = BpeTokenizer.train(PAIRS, vocab_size=553, shared_vocabulary=joint)
    torch.manual_seed(7)
    sizes = {"d_model": 30, "n_heads": 3, "n_layers": 2, "d_ff": 41, "max_length": 40} | fields
    model = Transformer(TransformerConfig(tokenizer.source_size, tokenizer.target_size, **sizes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("bias", "gain")):  # initialized to 0 and 1
                parameter.add_(0.3 * torch.randn_like(parameter))
    Translator(model, tokenizer).save(tmp_path, half=half)
    translator = Translator.load(tmp_path)
    source, target = translator.encode([PAIRS[0][0]])[0], [1, 5, 300, 0, 17, 301]  # 0 is a pad token
    logits, generated = compute(
        """const [source, target] = argument, step = model.start(source);
        const logits = target.map(token => [...step(token).logits]);
        return [logits, [...model.translate(source)].map(({ token }) => token)];""",
        tmp_path,
        [source, target],
    )
    with torch.no_grad():
        expected = translator.model(torch.tensor([source]), torch.tensor([target]))[0]
    np.testing.assert_allclose(np.array(logits), expected, rtol=0, atol=1e-4)
    limit = min(len(source) + 50, sizes["max_length"])
    greedy = greedy_decode(translator.model, torch.tensor([source]), limit)[0]
    assert [token for token in generated if token > 2] == [token for token in greedy if token > 2]


def test_weights_in_bfloat16_are_read(compute, tmp_path):
    from safetensors.torch import load_file, save_file

    tensors = {name: tensor.bfloat16() for name, tensor in load_file(PRETRAINED / "weights.safetensors").items()}
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((PRETRAINED / name).read_bytes())
    save_file(tensors, tmp_path / "weights.safetensors")
    found = compute("return [...model.output.bias]", tmp_path, None)
    assert found == tensors["output.bias"].float().tolist()
