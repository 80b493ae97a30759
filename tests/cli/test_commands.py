"""Run each command with valid input."""

import re
import subprocess
import sys
from dataclasses import fields
from functools import partial

import pytest
import tqdm

from transformer_lab.cli import app
from transformer_lab.cli_options import unwrap
from transformer_lab.decoding.translator import DEFAULT_ALPHA, PRETRAINED, Translator
from transformer_lab.training import PRESETS, Preset

COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands]
TYPE = re.compile(r"<[a-zA-Z\[\]]+>")


def test_every_command_shows_an_example_and_no_python_types(lab):
    """Most readers look only at the example, and a newcomer cannot tell what to type for `<list[str]>`."""
    for command in COMMANDS:
        shown = lab(command, "--help")
        assert shown.status == 0
        assert f"transformer-lab {command}" in shown.stdout.partition("Example")[2]
        assert not TYPE.search(shown.stdout)
    listed = lab("--help").stdout
    assert all(command in listed for command in COMMANDS)
    assert not TYPE.search(listed)


def test_every_field_of_a_preset_is_an_option_with_its_help(lab, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    shown = lab("train", "--help").stdout
    options = {field.name for field in fields(Preset)} - {"name"}
    assert all(f"--{option.replace('_', '-')} " in shown for option in options)
    assert re.search(r"--weight-decay +X ", shown)
    assert re.search(r"--tokenizer +bpe\|spacy ", shown)
    assert re.search(r"--clip-norm +X +scale gradients down to at most this norm; 0 turns clipping off", shown)
    assert ", ".join(PRESETS).replace(", paper", ", or paper") in shown


THEN_LIST_MODULES = """
import sys
from transformer_lab.cli import main
try:
    main()
finally:
    print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def imported_by(*arguments):
    command = [sys.executable, "-c", THEN_LIST_MODULES, *map(str, arguments)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stderr.split())


def test_help_does_not_wait_for_torch():
    """Importing torch would delay the help text by seconds."""
    for command in ("train", "grade"):
        assert not imported_by(command, "--help") & {"torch", "numpy", "nbformat"}


def test_translating_imports_no_unneeded_packages(model_folder):
    """Importing packages that translating does not need would delay the first translation."""
    imported = imported_by("translate", "--model", model_folder, "Der Hund sieht den Ball.")
    assert "torch" in imported
    assert not imported & {"matplotlib", "seaborn", "pandas", "spacy", "torchtext", "sacrebleu", "IPython", "pooch"}


def test_version(lab):
    assert re.fullmatch(r"transformer-lab \d+\.\d+\.\d+\n", lab("--version").stdout)


def test_train_prints_the_model_folder_and_its_score(lab, train_tiny, tmp_path):
    output = tmp_path / "run"
    done = lab(*train_tiny, "--seed", 3, "--output", output)
    assert done.status == 0
    assert re.fullmatch(rf"{re.escape(str(output))}: .+, validation BLEU \d+\.\d\d\n", done.stdout)
    assert lab(*done.next_command()).status == 0  # evaluates the new model on its corpus
    record = (output / "training.json").read_text(encoding="utf-8")
    assert '"seed": 3' in record
    assert '"d_model": 16' in record


def test_train_in_the_other_direction(lab, train_tiny, corpus_folder, tmp_path):
    assert lab(*train_tiny, "--source", "en", "--target", "de", "--output", tmp_path / "run").status == 0
    translated = lab("translate", "--model", tmp_path / "run", "The dog sees the ball.")
    assert translated.stdout.startswith("Der ")
    scored = lab("evaluate", "--model", tmp_path / "run", "--corpus", corpus_folder)  # the model records its languages
    assert scored.status == 0


def test_translate_prints_a_line_per_sentence_in_order(lab, model_folder):
    sentences = ["Der Hund sieht den Ball.", "Der Mann malt den Baum.", "Der Vogel sucht den Stein."]
    typed = lab("translate", "--model", model_folder, *sentences)
    piped = lab("translate", "--model", model_folder, stdin="\r\n".join(sentences).encode())
    alone = [lab("translate", "--model", model_folder, sentence).stdout for sentence in sentences]
    assert typed.status == piped.status == 0
    assert typed.stdout == piped.stdout == "".join(alone)
    assert typed.stdout.count("\n") == 3
    assert len(set(alone)) > 1  # otherwise the order could not be tested


def test_translate_a_sentence_with_an_unknown_character(lab, model_folder):
    """The rest of the sentence is still translated. A sentence is rejected only if all its characters are unknown."""
    translated = lab("translate", "--model", model_folder, "Der Hund 🐕 sieht den Ball in Łódź.", "...")
    assert translated.status == 0
    assert translated.stdout.count("\n") == 2


def test_a_sentence_in_the_target_language_is_translated_with_a_warning(lab, model_folder):
    """A user who types English gets nonsense and should be told why."""
    sentences = "Der Hund sieht den Ball.", "The dog sees the ball.", "A man is looking at the tree."
    translated = lab("translate", "--model", model_folder, *sentences)
    assert translated.status == 0
    assert translated.stdout.count("\n") == 3
    (warning,) = translated.stderr.splitlines()
    assert warning.startswith("warning: sentence 2 (and 1 more) looks like English")
    assert lab("translate", "--model", model_folder, sentences[0]).stderr == ""


def test_progress_is_shown_only_in_a_terminal(lab, model_folder, corpus_folder, monkeypatch):
    evaluate = "evaluate", "--model", model_folder, "--corpus", corpus_folder
    assert lab(*evaluate).stderr == ""
    monkeypatch.setattr(tqdm, "tqdm", partial(tqdm.tqdm, mininterval=0))
    monkeypatch.setattr("transformer_lab.cli.BAR_DELAY", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    shown = lab(*evaluate)
    assert "16/16" in shown.stderr
    assert shown.stdout.count("\n") == 3


def test_translate_greedily_and_with_a_beam(lab, model_folder, monkeypatch):
    """An option that never reached the decoder would silently have no effect."""
    asked = []

    def record(self, sentences, advance, **options):
        asked.append(options)
        return list(sentences)

    monkeypatch.setattr(Translator, "translate", record)
    lab("translate", "--model", model_folder, "Der Hund.", "--beam", 1)
    lab("translate", "--model", model_folder, "Der Hund.", "--beam", 7, "--alpha", 0.2)
    assert asked == [{"beam_size": 1, "alpha": DEFAULT_ALPHA}, {"beam_size": 7, "alpha": 0.2}]


def test_evaluate_prints_scores_with_signatures_and_saves_the_translations(lab, model_folder, corpus_folder, tmp_path):
    file = tmp_path / "hypotheses.txt"
    scored = lab("evaluate", "--model", model_folder, "--corpus", corpus_folder, "--output", file)
    cased, lowercased, chrf = scored.stdout.splitlines()
    assert "case:mixed" in cased
    assert "tok:13a" in cased
    assert "case:lc" in lowercased
    assert chrf.startswith("chrF")
    assert "nc:6" in chrf
    sources = (corpus_folder / "test_2016_tiny.de").read_bytes()
    assert lab("translate", "--model", model_folder, stdin=sources).stdout == file.read_text(encoding="utf-8")
    named = lab("evaluate", "--model", model_folder, "--corpus", corpus_folder, "--split", "test_2016_tiny")
    assert named.stdout == scored.stdout
    validated = lab("evaluate", "--model", model_folder, "--corpus", corpus_folder, "--split", "validation")
    assert validated.stdout != scored.stdout


def test_heatmap_draws_a_png_and_an_svg(lab, model_folder, tmp_path):
    picture, drawing = tmp_path / "picture.png", tmp_path / "new" / "drawing.svg"
    sentence = "Der Hund sieht den Ball."
    assert lab("heatmap", sentence, "--model", model_folder, "--out", picture).stdout == f"{picture}\n"
    options = ["--stack", "encoder", "--layer", 0, "--head", 1]
    assert lab("heatmap", sentence, "--model", model_folder, "--out", drawing, *options).status == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = drawing.read_text(encoding="utf-8")
    assert "Encoder self-attention, layer 0, head 1" in text
    assert "▁Ball" in text


def test_heatmap_writes_a_page_of_all_heads(lab, model_folder, tmp_path):
    page = tmp_path / "new" / "attention.html"
    assert lab("heatmap", "Der Hund sieht den Ball.", "--model", model_folder, "--html", page).stdout == f"{page}\n"
    text = page.read_text(encoding="utf-8")
    assert "Cross-attention, layer 0, head 1" in text
    assert "▁Ball" in text


def test_export_writes_a_folder_that_ctranslate2_accepts_as_a_model(lab, model_folder, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed: it is the extra `export`")
    shown = lab("export", model_folder, "--format", "ctranslate2", "--out", tmp_path / "service")
    assert (shown.status, shown.stdout) == (0, f"{tmp_path / 'service'}\n")
    assert ctranslate2.contains_model(str(tmp_path / "service"))


def test_export_writes_a_page(lab, model_folder, tmp_path):
    page = tmp_path / "new" / "translator.html"
    shown = lab("export", model_folder, "--format", "page", "--out", page)
    assert (shown.status, shown.stdout) == (0, f"{page}\n")
    assert shown.stderr == f"Next: open {page} in a browser\n"
    assert "translator-model" in page.read_text(encoding="utf-8")


def test_tour_trains_translates_scores_and_draws(lab, tiny_fields, tmp_path, monkeypatch):
    """A second run in the same folder shows the same output without training again."""
    from transformer_lab.training import override

    monkeypatch.setattr("transformer_lab.tour.HEAT_MAP_SENTENCE", "Der Hund sieht den Ball.")
    monkeypatch.setitem(PRESETS, "tour", override(PRESETS["tour"], tiny_fields))
    first = lab("tour", "--output", tmp_path / "tour")
    again = lab("tour", "--output", tmp_path / "tour")
    assert first.status == again.status == 0
    assert first.stdout == again.stdout
    assert first.stdout.count("\nreference  The ") == 4
    assert "BLEU, cased" in first.stdout
    assert (tmp_path / "tour" / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert "epoch 4" in first.stderr
    assert "epoch 4" not in again.stderr


def test_open_passes_the_copy_and_all_other_arguments_to_jupyterlab(lab, tmp_path, monkeypatch):
    started = []
    tour = tmp_path / "notebooks" / "00_tour.ipynb"
    tour.parent.mkdir()
    tour.touch()
    monkeypatch.setattr("transformer_lab.doctor.TOUR_NOTEBOOK", tour)
    monkeypatch.setattr("jupyterlab.labapp.main", started.append)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "elsewhere")
    assert lab("open", "--no-browser", "--port", "8890", "--help-all").status == 0
    copied = tmp_path / "my_course" / "00_tour.ipynb"
    address = "--LabApp.default_url=/lab/tree/00_tour.ipynb"  # so the link that --no-browser prints opens the tour
    assert started == [[str(copied), address, "--no-browser", "--port", "8890", "--help-all"]]
    assert copied.is_file()


def test_help_wraps_paragraphs_at_the_width_of_the_terminal_and_keeps_lists():
    """Typer keeps the line breaks of a docstring, so lines would be half empty in a narrow terminal."""
    docstring = """One.

        Two,
        of two lines.

        \b
        Examples:
          a list
        """
    assert unwrap(docstring) == "One.\n\nTwo, of two lines.\n\n\b\nExamples:\n  a list"


def test_no_arguments_show_the_help(lab):
    shown = lab()
    assert (shown.status, shown.stdout) == (0, lab("--help").stdout)


def test_the_old_name_of_the_output_option_still_works(lab, model_folder, tmp_path):
    for option in ("--out", "--output"):
        picture = tmp_path / f"{option}.svg"
        assert lab("heatmap", "Der Hund sieht den Ball.", "--model", model_folder, option, picture).status == 0
        assert picture.is_file()


needs_model = pytest.mark.skipif(
    not (PRETRAINED / "weights.safetensors").is_file(),
    reason=f"no model comes with this copy of the package: {PRETRAINED} is missing",
)


@needs_model
def test_the_included_model_translates_at_once(lab):
    """Translating with the included model is the first thing a new reader tries."""
    translated = lab("translate", "Ein kleiner Junge spielt draußen mit einem Ball.")
    assert translated.status == 0
    assert re.fullmatch(r"A (little|young|small) boy .*playing .*with a ball.*\.\n", translated.stdout)
    assert re.search(r"outside|outdoors", translated.stdout)


@needs_model
def test_the_included_model_draws_its_attention(lab, tmp_path):
    drawn = lab("heatmap", "Ein kleiner Junge spielt draußen mit einem Ball.", "--out", tmp_path / "attention.svg")
    assert drawn.status == 0
    assert "▁Junge" in (tmp_path / "attention.svg").read_text(encoding="utf-8")
