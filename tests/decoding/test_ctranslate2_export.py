"""Test exported models in the real CTranslate2 (probabilities and translations). Test exports that must be refused."""

import pytest
import torch
from tokenizers import Tokenizer
from torch import nn

from transformer_lab.data import BpeTokenizer, SpacyTokenizer, load_tokenizer
from transformer_lab.decoding import Translator
from transformer_lab.decoding.ctranslate2_export import PATIENCE, export_ctranslate2, service_tokenizer
from transformer_lab.errors import InputError
from transformer_lab.evaluation import score_translations
from transformer_lab.model import Transformer, TransformerConfig, record_attention

ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed: it is the extra `export`")

PAIRS = [
    ("Der Hund sieht den Ball.", "The dog sees the ball."),
    ("Der Mann sieht den Hund und malt.", "The man sees the dog and paints."),
    ("Der Vogel sucht den roten Ball.", "The bird seeks the red ball."),
    ("Der Mann sieht den Vogel.", "The man sees the bird."),
]
SENTENCES = [source for source, _ in PAIRS]


def make_translator(kind: str = "bpe", seed: int = 0, **sizes) -> Translator:
    """Return an untrained model whose norms and biases are not just ones and zeros, so that each of them matters."""
    if kind == "bpe":
        tokenizer = BpeTokenizer.train(PAIRS, vocab_size=600)
    else:
        tokenizer = SpacyTokenizer.train(PAIRS, min_frequency=1)
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 32, "max_length": 40} | sizes
    model = Transformer(TransformerConfig(tokenizer.source_size, tokenizer.target_size, **sizes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("gain", "bias")):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return Translator(model, tokenizer)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "service"


def open_engine(folder) -> "ctranslate2.Translator":
    threads = torch.get_num_threads()
    engine = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=1, compute_type="float32")
    torch.set_num_threads(threads)  # the engine changes this number, so later tests would round differently
    return engine


def assert_same_probabilities(translator: Translator, folder) -> None:
    """Export the model and compare each target token's log-probability with the engine's.

    The sentences have different lengths, so padding is covered too. In single precision, with sums of a few hundred
    products, 1e-4 is ten times the rounding error.
    """
    export_ctranslate2(translator, folder)
    tokenizer = translator.tokenizer
    sources = tokenizer.encode_sources(SENTENCES)
    targets = tokenizer.encode_targets([target for _, target in PAIRS])
    scored = open_engine(folder).score_batch(
        [[tokenizer.source_side.tokens[index] for index in ids[:-1]] for ids in sources],
        [[tokenizer.target_side.tokens[index] for index in ids[1:-1]] for ids in targets],
    )
    translator.model.eval()
    for source, target, scores in zip(sources, targets, scored, strict=True):
        with torch.no_grad():
            logits = translator.model(torch.tensor([source]), torch.tensor([target[:-1]]))[0]
        expected = logits.log_softmax(dim=-1).gather(1, torch.tensor(target[1:])[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(scores.log_probs), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("bpe", {"norm_first": True, "tie": True}),
        ("bpe", {"norm_first": True}),
        ("bpe", {"norm_first": False}),
        ("spacy", {"norm_first": False}),
    ],
    ids=["pre-norm, tied", "pre-norm", "post-norm", "post-norm, two vocabularies"],
)
def test_every_token_is_as_likely_there_as_here(kind, sizes, folder):
    """A misplaced weight, a missing scale, or different positions would show in the fourth digit."""
    assert_same_probabilities(make_translator(kind, **sizes), folder)


def test_one_epsilon_for_all_norms_is_exported(folder):
    """If epsilon were not exported, the engine would use 1e-5, regardless of the model's value.

    The model's attention was recorded earlier. That must not make the model look unsupported.
    """
    translator = make_translator()
    with record_attention(translator.model):
        pass
    for module in translator.model.modules():
        if hasattr(module, "eps"):
            module.eps = 0.5
    assert_same_probabilities(translator, folder)


@pytest.fixture(scope="module")
def service(pretrained, tmp_path_factory):
    """Export the model that comes with the package."""
    folder = tmp_path_factory.mktemp("export") / "service"
    export_ctranslate2(pretrained, folder)
    return folder


def translate_as_a_service(folder, sentences, beam_size) -> tuple[list[list[int]], list[str]]:
    """Return the IDs and the translations without using anything from this package."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens = [encoding.tokens for encoding in tokenizer.encode_batch(sentences)]
    results = open_engine(folder).translate_batch(tokens, beam_size=beam_size, patience=PATIENCE, max_batch_size=64)
    ids = [[tokenizer.token_to_id(token) for token in found.hypotheses[0]] for found in results]
    return ids, tokenizer.decode_batch(ids)


def test_greedy_gives_the_same_translations(pretrained, service, test2016, greedy_share):
    """If two tokens are equally likely up to rounding, either one may win, so 1% of the sentences may differ."""
    ids, _ = translate_as_a_service(service, test2016[0], 1)
    assert greedy_share(test2016[0], ids) >= 0.99


def test_a_beam_gives_translations_as_good(pretrained, service, test2016):
    """Some translations differ from ours, because CTranslate2 penalizes length and ends the search differently.

    On all 1,000 sentences, the two scores are within 0.3 BLEU of each other (`benchmarks/export.py`); on a quarter of
    the sentences, they are within 0.6.
    """
    sources, references = test2016
    here = score_translations(pretrained.translate(sources, beam_size=4), references).bleu
    there = score_translations(translate_as_a_service(service, sources, 4)[1], references).bleu
    assert there == pytest.approx(here, abs=0.6)


def test_a_service_cuts_sentences_as_the_course_does(pretrained):
    """If sentences were split differently, the model would read unfamiliar tokens and silently get worse."""
    tokenizer = pretrained.tokenizer
    service = service_tokenizer(tokenizer)
    sentences = [
        *SENTENCES,
        "  Zwei\t Hunde \u00a0rennen.\n",
        "a\x1cb\x1fc\x85d\u2003e\u3000f",
        "Ein Bär, a\u0308lter als 🐕 \u200d<eos> <pad>!",
        "中文 2016",
    ]
    for sentence in sentences:
        encoding = service.encode(sentence)
        assert encoding.ids == tokenizer.encode_source(sentence)[:-1]
        assert service.decode(encoding.ids) == tokenizer.decode(encoding.ids)


def test_the_tokenizer_of_words_goes_along(folder):
    translator = make_translator("spacy")
    export_ctranslate2(translator, folder)
    loaded = load_tokenizer(folder)
    assert loaded.encode_sources(SENTENCES) == translator.tokenizer.encode_sources(SENTENCES)


def test_a_translation_without_end_is_cut_off(folder):
    """CTranslate2 writes up to 256 tokens. If it had no more positions than the model, the whole batch would fail."""
    translator = make_translator(max_length=8)
    with torch.no_grad():
        translator.model.output.bias[2] = -1e4  # so that eos is never predicted
    export_ctranslate2(translator, folder)
    (found,) = open_engine(folder).translate_batch([["D", "e", "r"]], beam_size=1)
    assert len(found.hypotheses[0]) == 256


def test_a_source_that_is_too_long_is_refused_there_as_well(folder):
    """The model was never trained on such positions, so an error is better than a nonsense translation."""
    export_ctranslate2(make_translator(max_length=8), folder)
    with pytest.raises(RuntimeError, match="position encodings"):
        open_engine(folder).translate_batch([["D"] * 8], beam_size=1)


# --- models that CTranslate2 would compute differently ---


@pytest.mark.parametrize(
    ("name", "attribute", "value", "says"),
    [
        ("encoder.layers.1", "feed_forward", nn.GELU(), r"encoder\.layers\.1\.feed_forward is a .*GELU"),
        (
            "encoder.layers.0.self_attention",
            "attend",
            lambda *_: None,
            "self_attention uses another attention function",
        ),
        ("decoder.layers.0.residuals.1", "norm_first", False, "some sublayers are pre-norm, others post-norm"),
        ("encoder", "norm", nn.Identity(), "final norm"),
        ("decoder.norm", "eps", 1e-3, "eps"),
        ("source_embedding", "scale", 1.0, "scales embeddings by √d_model = 4"),
    ],
)
def test_a_model_that_it_does_not_support_is_refused(name, attribute, value, says, folder):
    """Without an error, an unsupported model would load in CTranslate2 but translate incorrectly."""
    translator = make_translator(norm_first=True)
    setattr(translator.model.get_submodule(name), attribute, value)
    with pytest.raises(InputError, match=says) as refused:
        export_ctranslate2(translator, folder)
    assert "\n" not in str(refused.value)
    assert list(folder.parent.iterdir()) == []


# --- the folder ---


def test_only_an_empty_folder_is_filled(folder):
    """An older export's vocabulary must not be mixed with new weights."""
    folder.mkdir()
    (folder / "shared_vocabulary.json").write_text("[]")
    with pytest.raises(InputError, match="service already exists"):
        export_ctranslate2(make_translator(), folder)
    assert (folder / "shared_vocabulary.json").read_text() == "[]"
    (folder / "shared_vocabulary.json").unlink()
    export_ctranslate2(make_translator(), folder)
    assert ctranslate2.contains_model(str(folder))


def test_an_export_that_fails_leaves_nothing(tmp_path, folder, monkeypatch):
    """An incomplete model might be loaded in part or deployed as if it were complete."""

    def disk_is_full(self, *_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", disk_is_full)  # fails at the last file, after the weights
    with pytest.raises(InputError, match="No space left"):
        export_ctranslate2(make_translator(), folder)
    assert list(tmp_path.iterdir()) == []


def test_an_export_leaves_its_neighbors_alone(tmp_path, folder):
    """An existing folder whose name looks like a partial export belongs to the user and must not be touched."""
    for name in ("service.part", ".service", "service.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("mine")
    before = {path.name for path in tmp_path.iterdir()}
    export_ctranslate2(make_translator(), folder)
    assert {path.name for path in tmp_path.iterdir()} == before | {"service"}
    assert all((tmp_path / name / "thesis.txt").read_text() == "mine" for name in before)
    ordinary = tmp_path / "ordinary"
    ordinary.mkdir()
    assert folder.stat().st_mode == ordinary.stat().st_mode  # a service may run as another user


@pytest.mark.parametrize("chinese", ["byte_pairs", "characters"])
def test_chinese_is_spelled_there_as_here(chinese):
    """The service lacks our `normalize`, so it must remove the same spaces and not add any before a character."""
    pairs = [("I like Python 3.", "我很喜欢Python 3。"), ("Tom said: “Hello!”", "汤姆说：“你好！”")] * 5
    tokenizer = BpeTokenizer.train(pairs, "en", "zh", vocab_size=600, chinese=chinese)
    service = service_tokenizer(tokenizer)
    for text in ("我们 也喜欢 Python。", "Tom 说：“你好！”", " 我 3 , 好", "𠀀龘", "I like 我 ，too"):
        assert service.encode(text).ids == tokenizer.encode_source(text)[:-1]
        assert service.decode(service.encode(text).ids) == tokenizer.decode(tokenizer.encode_source(text))
