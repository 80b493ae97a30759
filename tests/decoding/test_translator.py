"""Sentences stay in order, saved folders load correctly, and bad input produces a one-line error."""

import json
import os
import struct

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from transformer_lab.data import BpeTokenizer
from transformer_lab.decoding import Translator, beam_search, translator
from transformer_lab.errors import InputError
from transformer_lab.files import replacing
from transformer_lab.model import Transformer, TransformerConfig

EOS = 2
FILES = ["config.json", "tokenizer.json", "weights.safetensors"]
PAIRS = [
    ("Ein kleiner Junge spielt im Garten.", "A little boy is playing in the garden."),
    ("Zwei Hunde rennen durch den Schnee.", "Two dogs are running through the snow."),
    ("Eine Frau mit rotem Hut liest ein Buch.", "A woman in a red hat is reading a book."),
    ("Drei Männer sitzen auf einer Bank und reden.", "Three men are sitting on a bench and talking."),
]
SENTENCES = [
    "Drei Hunde.",
    "Eine kleine Frau mit rotem Hut und zwei Hunde sitzen im Schnee und reden.",
    "Ein Junge spielt.",
    "Zwei Männer lesen im Garten ein Buch.",
    "Schnee!",
]


@pytest.fixture(scope="module")
def tokenizer():
    return BpeTokenizer.train(PAIRS, vocab_size=600)


def make_translator(tokenizer, seed=7, **sizes) -> Translator:
    """Return a translator with random weights whose translations terminate and vary from sentence to sentence."""
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 2, "d_ff": 32, "norm_first": True, "max_length": 80} | sizes
    model = Transformer(TransformerConfig(tokenizer.source_size, tokenizer.target_size, **sizes))
    with torch.no_grad():
        model.output.weight.mul_(4.0)
        model.output.weight[EOS] *= 2.0
        model.output.bias[3:260] -= 20.0  # bytes, because random ones rarely form valid text
    return Translator(model, tokenizer)


@pytest.fixture(scope="module")
def untied(tokenizer):
    return make_translator(tokenizer)


@pytest.fixture(scope="module")
def tied(tokenizer):
    return make_translator(tokenizer, tie=True)


def refusal(call, *arguments, **options) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def fail_to_replace(path, monkeypatch):
    def replace(source, target, replace=os.replace):
        if target == path:
            raise OSError(5, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace)


class TestTranslate:
    def test_each_sentence_gets_its_own_translation_in_its_own_place(self, untied, monkeypatch):
        """Sorting by length reorders the sentences. With batches of two, both the order and the padding matter."""
        monkeypatch.setattr(translator, "BATCH_CELLS", 4 * 12)
        together = untied.translate(SENTENCES)
        assert len(set(together)) > 2
        assert together == [untied.translate([sentence])[0] for sentence in SENTENCES]
        assert untied.translate(SENTENCES[::-1]) == together[::-1]

    @pytest.mark.parametrize("beam_size", [1, 3])
    def test_searches_as_the_plain_search_does(self, beam_size, untied):
        for sentence, found in zip(SENTENCES, untied.translate(SENTENCES, beam_size, alpha=0.6), strict=True):
            source = torch.tensor([untied.tokenizer.encode_source(sentence)])
            expected = beam_search(untied.model, source, beam_size, 0.6, min(80, source.size(1) + 50))
            assert found == untied.tokenizer.decode(expected[0])

    def test_ends_50_tokens_after_the_source_or_where_it_is_told_to(self, tokenizer):
        """A model that never predicts eos stops when its output is 50 tokens longer than the source (section 6.1)."""
        endless = make_translator(tokenizer, max_length=60)
        with torch.no_grad():
            endless.model.output.bias[:3] -= 100.0  # pad and bos too, because translations leave them out
        counts = [len(ids) for ids in endless.search(["Schnee!", SENTENCES[1]], 2, 1.0, None)]
        sources = [len(ids) for ids in tokenizer.encode_sources(["Schnee!", SENTENCES[1]])]
        assert counts == [sources[0] + 50, 60]
        assert [len(ids) for ids in endless.search(SENTENCES, 2, 1.0, 7)] == [7] * len(SENTENCES)

    def test_leaves_the_model_as_it_was(self, untied):
        """Validation runs the translator in the middle of training, so the model's mode must not change."""
        untied.model.train()
        first = untied.translate(SENTENCES)
        assert untied.model.training
        assert untied.translate(SENTENCES) == first
        assert all(parameter.requires_grad and parameter.grad is None for parameter in untied.model.parameters())

    @pytest.mark.parametrize("sentence", ["😀 🎉", "مرحبا بالعالم", "\u200b", "x" * 70, "a\tb\u00a0c\r", "<eos> <pad>"])
    def test_strange_text_is_translated(self, untied, sentence):
        """Every text can be encoded as bytes, so no text may be refused."""
        assert isinstance(untied.translate([sentence])[0], str)
        assert untied.translate([]) == []

    @pytest.mark.parametrize(
        ("sentence", "named"),
        [
            ("", "sentence 3 is empty"),
            (" \t\u00a0 ", "sentence 3 is empty"),
            ("Ein\0Hund", "sentence 3 has a NUL byte at character 4"),
            ("Ein \ud800 Hund", "sentence 3 is not valid Unicode at character 5"),
            (None, "sentence 3 is None"),
            ("Hund " * 10_000, "sentence 3 has 10001 tokens, but this model reads at most 80"),
        ],
    )
    def test_an_unusable_sentence_is_named_by_its_number(self, untied, sentence, named):
        assert refusal(untied.translate, [*SENTENCES[:2], sentence]).startswith(named)

    def test_an_unusable_translation_is_not_called_a_sentence(self, untied):
        assert refusal(untied.attention, "Ein Hund.", " ").startswith("the translation is empty")

    def test_exactly_max_length_is_translated(self, tokenizer):
        """Eos counts as a token, so one more word does not fit."""
        length = len(tokenizer.encode_source("Hund Hund Hund"))
        small = make_translator(tokenizer, max_length=length)
        assert small.translate(["Hund Hund Hund"])
        assert f"at most {length}" in refusal(small.translate, ["Hund Hund Hund Hund"])

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"beam_size": 0}, "`beam_size` must be from 1 to 1000; got 0"),
            ({"max_length": 0}, "`max_length` must be from 1 to 80"),
            ({"max_length": 81}, "80"),
            ({"alpha": float("nan")}, "`alpha` must be a finite number; got nan"),
            ({"sentences": "Ein Hund."}, "list"),  # otherwise every character would be translated on its own
        ],
    )
    def test_options_that_cannot_work_are_refused(self, untied, options, named):
        assert named in refusal(untied.translate, **({"sentences": SENTENCES} | options))


class TestAttention:
    def test_rows_and_columns_carry_their_tokens(self, untied):
        weights, source_tokens, target_tokens = untied.attention(SENTENCES[0])
        translated = untied.tokenizer.target_tokens(untied.search(SENTENCES[:1], 4, translator.DEFAULT_ALPHA, None)[0])
        assert source_tokens[-1] == "<eos>"
        assert target_tokens == ["<bos>", *translated]
        rows, columns = len(target_tokens), len(source_tokens)
        expected = {"encoder": (columns, columns), "decoder": (rows, rows), "cross": (rows, columns)}
        assert len(weights) == 6
        for name, layer in weights.items():
            kind = "cross" if name.endswith("cross_attention") else name.split(".")[0]
            assert layer.shape == (1, 2, *expected[kind]), name
            torch.testing.assert_close(layer.sum(-1), torch.ones(layer.shape[:-1]))

    def test_a_translation_can_be_given(self, untied):
        """The last row of weights predicts eos, so eos itself has no row."""
        weights, _, target_tokens = untied.attention("Zwei Hunde.", "Two dogs.")
        assert target_tokens == untied.tokenizer.target_tokens(untied.tokenizer.encode_target("Two dogs."))[:-1]
        assert weights["decoder.layers.0.self_attention"].triu(1).eq(0).all()

    def test_is_without_dropout_and_leaves_the_model_as_it_was(self, untied):
        untied.model.train()
        first, second = (untied.attention(SENTENCES[2])[0] for _ in range(2))
        assert all(torch.equal(first[name], second[name]) for name in first)
        assert untied.model.training
        assert not any(weights.requires_grad for weights in first.values())

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [((" ",), "empty"), (("Hund.", " "), "empty"), (("Hund " * 100,), "80"), (("Hund.", "dog " * 100), "80")],
    )
    def test_what_cannot_be_shown(self, untied, arguments, named):
        assert named in refusal(untied.attention, *arguments)


class TestFolder:
    @pytest.mark.parametrize("kind", ["untied", "tied"])
    def test_loads_what_was_saved(self, kind, tmp_path, request):
        saved = request.getfixturevalue(kind)
        saved.save(tmp_path / "new" / "folder")
        assert sorted(os.listdir(tmp_path / "new" / "folder")) == FILES  # and no temporary file
        loaded = Translator.load(tmp_path / "new" / "folder")
        assert loaded.model.config == saved.model.config
        assert not loaded.model.training
        torch.testing.assert_close(loaded.model.state_dict(), saved.model.state_dict(), rtol=0, atol=0)
        assert loaded.translate(SENTENCES) == saved.translate(SENTENCES)

    def test_tied_weights_are_stored_once_and_tied_again(self, tied, untied, tmp_path):
        """Three copies would triple the size of the file and would drift apart if training continued."""
        tied.save(tmp_path)
        with safe_open(tmp_path / "weights.safetensors", framework="pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
        assert shapes.count([tied.model.config.target_vocab, 16]) == 1
        model = Translator.load(tmp_path).model
        assert model.output.weight is model.target_embedding.embedding.weight
        assert model.output.weight is model.source_embedding.embedding.weight

    def test_half_precision_is_on_the_disk_alone(self, untied, tmp_path):
        """Half-precision arithmetic is slow on a CPU. Training would stall if it continued in half precision."""
        untied.save(tmp_path / "half", half=True)
        untied.save(tmp_path / "full")
        sizes = [(tmp_path / name / "weights.safetensors").stat().st_size for name in ("half", "full")]
        assert sizes[0] < 0.6 * sizes[1]
        loaded = Translator.load(tmp_path / "half").model.state_dict()
        assert {tensor.dtype for tensor in untied.model.parameters()} == {torch.float32}
        # Half precision has 11 bits. The dtypes are compared, too.
        torch.testing.assert_close(loaded, untied.model.state_dict(), rtol=2**-11, atol=1e-7)

    def test_bfloat16_is_cast_too(self, untied, tmp_path):
        untied.save(tmp_path)
        weights = {name: tensor.bfloat16() for name, tensor in load_file(tmp_path / "weights.safetensors").items()}
        save_file(weights, tmp_path / "weights.safetensors")
        assert {parameter.dtype for parameter in Translator.load(tmp_path).model.parameters()} == {torch.float32}

    @pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")
    @pytest.mark.parametrize(("mask", "rights"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
    def test_files_have_the_rights_that_new_files_get(self, tied, tmp_path, mask, rights):
        """safetensors makes files readable only by their owner, but the umask should decide who can read them."""
        before = os.umask(mask)
        try:
            tied.save(tmp_path)
            (tmp_path / "alone.part").touch(0o400)  # left by a process that was killed
            with replacing(tmp_path / "alone") as unfinished:
                save_file({"one": torch.ones(1)}, unfinished)
        finally:
            os.umask(before)
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {rights}

    @pytest.fixture
    def saved(self, tied, tmp_path):
        """Save a model, and afterward check that its files did not change."""
        tied.save(tmp_path)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        yield tmp_path
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    def test_a_full_disk_leaves_the_old_weights(self, saved, tokenizer, monkeypatch):
        """If a whole file were replaced with half a file, a night's training would be lost."""

        def full(file_descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        assert "No space left on device" in refusal(make_translator(tokenizer, seed=9, tie=True).save, saved)

    @pytest.mark.parametrize("name", FILES)
    def test_either_all_files_are_replaced_or_none(self, saved, tokenizer, monkeypatch, name):
        """New weights next to an old configuration would form a model that was never trained."""
        fail_to_replace(saved / name, monkeypatch)
        assert "Input/output error" in refusal(make_translator(tokenizer, seed=9, n_layers=1).save, saved)

    def test_an_interruption_leaves_the_old_files(self, saved, untied, monkeypatch):
        """Ctrl-C while the tokenizer is written must not leave a mix of old and new files."""

        def interrupted(folder):
            raise KeyboardInterrupt

        monkeypatch.setattr(untied.tokenizer, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            untied.save(saved)

    def test_a_first_save_that_fails_leaves_nothing(self, tied, tmp_path, monkeypatch):
        fail_to_replace(tmp_path / "tokenizer.json", monkeypatch)
        refusal(tied.save, tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_the_remains_of_a_killed_run_are_removed(self, tied, tmp_path):
        (tmp_path / ".unfinished" / "old").mkdir(parents=True)
        (tmp_path / ".unfinished" / "weights.safetensors").write_text("half")
        tied.save(tmp_path)
        assert not (tmp_path / ".unfinished").exists()

    def test_saves_where_there_are_no_hard_links(self, tied, untied, tmp_path, monkeypatch):
        def unknown(source, target):
            raise OSError(1, "Operation not permitted")

        tied.save(tmp_path)
        monkeypatch.setattr(os, "link", unknown)
        untied.save(tmp_path)
        assert not Translator.load(tmp_path).model.config.tie

    def test_a_folder_that_cannot_be_written_is_named(self, tied, tmp_path):
        (tmp_path / "file").write_text("not a folder")
        (tmp_path / "weights.safetensors").mkdir()
        assert str(tmp_path / "file" / "model") in refusal(tied.save, tmp_path / "file" / "model")
        assert "weights.safetensors" in refusal(tied.save, tmp_path)


class TestDamagedFolder:
    """Each kind of damage is reported in one line that names the file. A traceback from a library must never appear."""

    @pytest.fixture
    def folder(self, untied, tmp_path):
        untied.save(tmp_path)
        return tmp_path

    def change_config(self, folder, **changes):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    @pytest.mark.parametrize("name", FILES)
    def test_a_missing_file(self, folder, name):
        assert str(folder / "none") in refusal(Translator.load, folder / "none")
        (folder / name).unlink()
        message = refusal(Translator.load, folder)
        assert str(folder / name) in message
        assert "None" not in message

    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("part", [0, 0.3, 0.99])
    def test_a_truncated_file(self, folder, name, part):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * part)])
        assert str(folder / name) in refusal(Translator.load, folder)

    def test_weights_that_claim_to_be_endless(self, folder):
        (folder / "weights.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")
        assert "weights.safetensors" in refusal(Translator.load, folder)

    @pytest.mark.parametrize(
        "text",
        ["not JSON", "[1, 2]", "null", '{"d_model": 16}', '{"color": "red"}', "\udcff", "[" * 9**6],
        ids=range(7),
    )
    def test_a_config_that_is_not_one(self, folder, text):
        (folder / "config.json").write_text(text, errors="surrogateescape")
        assert str(folder / "config.json") in refusal(Translator.load, folder)

    @pytest.mark.parametrize("changes", [{"n_heads": 3}, {"d_model": "wide"}, {"dropout": -1.0}, {"n_layers": None}])
    def test_a_config_that_no_model_can_have(self, folder, changes):
        self.change_config(folder, **changes)
        assert str(folder / "config.json") in refusal(Translator.load, folder)

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"d_model": 32}, ("source_embedding.embedding.weight", "16)", "32)")),
            ({"d_ff": 64}, ("encoder.layers.0.feed_forward.w_1.weight", "(32, 16)", "(64, 16)")),
            ({"n_layers": 3}, ("has no encoder.layers.2.self_attention.w_q.weight",)),
            ({"n_layers": 1}, ("has decoder.layers.1",)),
            ({"tie": True}, ("but the model doesn't: take",)),
        ],
    )
    def test_a_config_of_another_shape_names_the_first_tensor_that_differs(self, folder, changes, named):
        self.change_config(folder, **changes)
        message = refusal(Translator.load, folder)
        assert str(folder / "weights.safetensors") in message
        assert all(name in message for name in named)

    @pytest.mark.parametrize("name", ["pad_id", "bos_id", "eos_id", "source_vocab", "target_vocab"])
    def test_a_tokenizer_of_another_model(self, folder, name):
        """IDs outside the vocabulary would cause a traceback. Wrong IDs inside it would produce nonsense."""
        self.change_config(folder, **{name: 9999})
        message = refusal(Translator.load, folder)
        assert message.startswith(f"{folder / 'tokenizer.json'} has {name} ")
        assert message.endswith("but config.json says 9999: take both files from the same run")

    def test_a_tensor_too_few_and_one_too_many(self, folder):
        weights = load_file(folder / "weights.safetensors")
        save_file(weights | {"more": torch.ones(1)}, folder / "weights.safetensors")
        assert "has more" in refusal(Translator.load, folder)
        del weights["output.bias"]
        save_file(weights, folder / "weights.safetensors")
        assert "has no output.bias" in refusal(Translator.load, folder)
