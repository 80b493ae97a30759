"""The `transformer-lab` command: each function parses its options, calls the package, and prints the result.

PyTorch is imported inside the commands that need it, and only after the options have been checked, so `--help` and
errors appear right away. Results go to stdout; warnings, progress, and suggestions go to stderr, so output can be
piped.
"""

import errno
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from transformer_lab.cli_options import (
    ALPHA,
    BEAM,
    DATA_DIR,
    MODEL,
    SEARCHED,
    SOURCE,
    TARGET,
    Command,
    Group,
    check_corpus,
    check_languages,
    check_layer_and_head,
    check_unsearched,
    existing_file,
    file_name,
    flag,
    matching,
    new_folder,
    one_of,
    option,
    whole,
    with_preset_options,
)
from transformer_lab.errors import InputError
from transformer_lab.presets import MOST_WORKERS, find_preset, override, reject_unused_option

if TYPE_CHECKING:
    from tqdm import tqdm

    from transformer_lab.classroom.batch import Change
    from transformer_lab.decoding.translator import Translator

LEARN, TRANSLATE, TRAIN, TEACH = "Learn", "Translate", "Train", "Teach"  # the panels of --help
BAR_DELAY = 1.0  # seconds until a progress bar appears: a single sentence doesn't need one

app = typer.Typer(
    cls=Group,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    # --out is the old name of --output
    context_settings={"token_normalize_func": lambda name: "output" if name == "out" else name},
)
command = partial(app.command, cls=Command)


def print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"transformer-lab {version('transformer-lab')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def transformer_lab(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=print_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Build, train, and inspect the Transformer from "Attention Is All You Need"."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def suggest(step: str) -> None:
    """Print what to do next, in one line on stderr."""
    print(f"Next: {step}", file=sys.stderr)


@contextmanager
def progress(total: int | None, unit: str, delay: float = 0.0) -> Iterator["tqdm"]:
    """Show a progress bar on stderr, but only in a terminal. `delay` is the time in seconds until it appears."""
    from tqdm import tqdm

    with tqdm(total=total, unit=unit, disable=None, leave=False, delay=delay, dynamic_ncols=True) as bar:
        yield bar


def advance_to(bar: "tqdm", done: int, total: int) -> None:
    """Show that `done` of `total` steps are done."""
    bar.n, bar.total = done, total
    bar.refresh()


@contextmanager
def explaining_interruption(explain: Callable[[], str]) -> Iterator[None]:
    """After Ctrl-C, say what was saved and how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {explain()}") from None


def how_to_resume(output: Path, *option: str) -> str:
    """Return the message to print after a training run was interrupted: the command that continues it."""
    if not (output / "training.json").exists():
        return "nothing was trained yet"
    if int(os.environ.get("RANK", "0")):  # under torchrun, only the first process prints
        raise KeyboardInterrupt
    arguments = [argument for argument in sys.argv[1:] if argument not in option]
    again = shlex.join(["transformer-lab", *arguments, *option])
    if "RANK" in os.environ:
        again = "the same torchrun command and --resume"
    return f"continue after the last finished epoch with: {again}"


# --- learn ------------------------------------------------------------------------------------------------------------


@command(
    name="open",
    rich_help_panel=LEARN,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def open_course(
    context: typer.Context,
    fresh: str | None = option(
        "--fresh", "NOTEBOOK", "start a notebook over, such as 03; your version is kept under a new name"
    ),
) -> None:
    """Open your copy of the course, the folder my_course/, in JupyterLab.

    The first time, this copies the notebooks. JupyterLab receives any other arguments.

    \b
    Examples:
      transformer-lab open
      transformer-lab open --fresh 03
      transformer-lab open --no-browser --port 8890
    """
    from transformer_lab.doctor import INSTALL, TOUR_NOTEBOOK
    from transformer_lab.my_course import folder_for, jupyterlab_environment, prepare, refresh

    if not TOUR_NOTEBOOK.is_file():
        raise InputError(f"{TOUR_NOTEBOOK} is missing: install transformer-lab again, from a clone or from a wheel")
    notebooks = TOUR_NOTEBOOK.parent
    folder = folder_for(notebooks)
    if fresh is not None:
        notebook, kept = refresh(folder, fresh, notebooks)
        print(f"{notebook} has been reset" + (f"; your version is now {kept.name}" if kept else ""))
    for name in prepare(folder, notebooks):
        print(f"There is a newer version of {name}. To get it: transformer-lab open --fresh {name[:2]}")
    try:
        os.environ.update(jupyterlab_environment(folder, os.environ))  # JupyterLab reads them when it is imported
        from jupyterlab.labapp import main as start_jupyterlab
    except ImportError as error:
        raise InputError(f"JupyterLab does not load ({error}): {INSTALL}") from None
    address = f"/lab/tree/{TOUR_NOTEBOOK.name}"  # printed with --no-browser; /lab alone shows only the launcher
    start_jupyterlab([str(folder / TOUR_NOTEBOOK.name), f"--LabApp.default_url={address}", *context.args])


@command(rich_help_panel=LEARN)
def doctor(
    verbose: bool = flag("--verbose", "list every check, not only the problems"),
) -> None:
    """Check whether this machine has everything the course needs, and say how to fix what is missing.

    \b
    Example:
      transformer-lab doctor
    """
    from transformer_lab.doctor import examine

    table = Table(box=None, show_header=False, pad_edge=False)
    findings = examine()
    problems = [finding for finding in findings if not finding.ok]
    for finding in findings if verbose else problems:
        mark = "[green]OK[/]" if finding.ok else "[red]MISSING[/]" if finding.essential else "[yellow]TO DO[/]"
        table.add_row(mark, finding.name, escape(finding.observed))
        if finding.advice:
            table.add_row("", "", f"[bold]{escape(finding.advice)}[/]")
    if table.row_count:
        Console().print(table)
    if any(finding.essential for finding in problems):
        raise typer.Exit(1)
    print("Ready, except for the items listed above." if problems else "Ready. Start with: transformer-lab open")


@command(rich_help_panel=LEARN)
def tour(
    output: Path = option(
        "--output", "FOLDER", "folder for the model and its heat map", new_folder, default=Path("runs/tour")
    ),
) -> None:
    """Train a small model in about a minute, translate with it, score it, and draw its attention.

    \b
    Example:
      transformer-lab tour
    """
    from transformer_lab.tour import HEAT_MAP_SENTENCE, tour

    with explaining_interruption(partial(how_to_resume, output)):
        visit = tour(output)
    for source, translation, reference in visit.examples:
        print(f"German     {source}\nmodel      {translation}\nreference  {reference}\n")
    print(f"{visit.scores}\n\nmodel     {output}\nheat map  {visit.heat_map}")
    suggest(f"transformer-lab translate --model {shlex.quote(str(output))} {shlex.quote(HEAT_MAP_SENTENCE)}")


# --- translate --------------------------------------------------------------------------------------------------------


@command(rich_help_panel=TRANSLATE)
def translate(
    sentences: list[str] | None = typer.Argument(
        None, metavar="SENTENCE", help="one or more, each in quotation marks; default: the lines of stdin"
    ),
    model: Path | None = MODEL,
    beam_size: str = BEAM,
    alpha: str = ALPHA,
) -> None:
    """Translate sentences, and print one translation per line.

    \b
    Examples:
      transformer-lab translate "Ein kleiner Junge spielt draußen mit einem Ball."
      transformer-lab translate --model runs/laptop < german.txt > english.txt
    """
    sentences = sentences or read_lines()
    translator = load_model(model)
    check_language(sentences, translator)
    with progress(len(sentences), " sentences", BAR_DELAY) as bar:
        translations = translator.translate(sentences, beam_size=beam_size, alpha=alpha, advance=bar.update)
    for translation in translations:
        print(translation)


def load_model(folder: Path | None) -> "Translator":
    from transformer_lab.decoding.translator import Translator, load_pretrained

    return Translator.load(folder) if folder else load_pretrained()


def read_lines() -> list[str]:
    """Return the lines of stdin.

    Invalid UTF-8 is decoded to characters that the translator rejects with an error that names the line.

    Raises:
        InputError: There are no lines.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        print("Type one sentence per line, then Ctrl-D (on Windows, Ctrl-Z and Enter):", file=sys.stderr)
    try:
        content = sys.stdin.buffer.read() if sys.stdin is not None else b""
    except OSError:  # nohup leaves a stdin that is write-only
        content = b""
    content = content.removeprefix(b"\xef\xbb\xbf")  # the byte-order mark that some programs add
    text = content.decode(errors="surrogateescape").removesuffix("\n")
    if not text:
        raise InputError("no sentence: give one in quotation marks, or lines on stdin")
    return text.split("\n")


def check_language(sentences: Sequence[str], translator: "Translator") -> None:
    """Warn about sentences that are already in the target language, and reject those in an unknown script.

    Raises:
        InputError: The model does not know any of a sentence's characters.
    """
    from transformer_lab.decoding.input_language import LANGUAGE_NAMES, in_target_language, reject_unknown_script

    reject_unknown_script(sentences, translator.encode(sentences), translator.tokenizer)
    source, target = translator.tokenizer.source, translator.tokenizer.target
    if numbers := in_target_language(sentences, source, target):
        more = f" (and {len(numbers) - 1} more)" if len(numbers) > 1 else ""
        print(
            f"warning: sentence {numbers[0]}{more} looks like {LANGUAGE_NAMES[target]}, but this model translates "
            f"{LANGUAGE_NAMES[source]} to {LANGUAGE_NAMES[target]}",
            file=sys.stderr,
        )


@command(rich_help_panel=TRANSLATE)
def evaluate(
    model: Path | None = MODEL,
    corpus: str = option(
        "--corpus", "NAME", "multi30k, captions, or your own folder or table of pairs", default="multi30k"
    ),
    split: str | None = option(
        "--split", "NAME", "test set to score, such as test_2017_flickr; default: the first one"
    ),
    data_dir: Path | None = DATA_DIR,
    beam_size: str = BEAM,
    alpha: str = ALPHA,
    output: Path | None = option(
        "--output", "FILE", "also save the translations to this file, one per line", file_name()
    ),
) -> None:
    """Translate a test set and score the translations with sacreBLEU.

    Prints BLEU, case-insensitive BLEU, and chrF, each with the signature to quote with it.

    \b
    Examples:
      transformer-lab evaluate
      transformer-lab evaluate --model runs/gpu --split test_2017_mscoco --output hypotheses.txt
      transformer-lab evaluate --model runs/chinese --corpus cmn.txt
    """
    check_corpus(corpus, data_dir)
    from transformer_lab.data import load_corpus
    from transformer_lab.evaluation import score_translations
    from transformer_lab.files import replacing, writing

    if output:
        with writing(output):  # fail now, not after translating for minutes
            output.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(output.parent, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    translator = load_model(model)
    languages = translator.tokenizer.source, translator.tokenizer.target
    loaded_corpus = load_corpus(corpus, *languages, data_dir)
    pairs = loaded_corpus.split(split)
    try:
        with progress(len(pairs), " sentences", BAR_DELAY) as bar:
            translations = translator.translate(
                [source for source, _ in pairs], beam_size=beam_size, alpha=alpha, advance=bar.update
            )
    except InputError as error:
        named = f"{loaded_corpus.name}, {split or next(iter(loaded_corpus.tests))}"
        raise InputError(f"{named}: {error}") from None
    print(score_translations(translations, [reference for _, reference in pairs], translator.tokenizer.target))
    if output:
        with replacing(output) as unfinished:
            unfinished.write_text("".join(f"{translation}\n" for translation in translations), encoding="utf-8")


@command(rich_help_panel=TRANSLATE)
def heatmap(
    sentence: str = typer.Argument(metavar="SENTENCE", help="the sentence to translate, in quotation marks"),
    out: Path = option(
        "--output", "FILE", "picture to write, .png or .svg", file_name(".png", ".svg"), default=Path("attention.png")
    ),
    model: Path | None = MODEL,
    stack: str = option(
        "--stack",
        "NAME",
        "cross: from the translation to the source; encoder or decoder: self-attention",
        one_of("cross", "encoder", "decoder"),
        default="cross",
    ),
    layer: str = option("--layer", "N", "layer, counted from 0; -1 is the last one", whole(), default="-1"),
    head: str | None = option("--head", "N", "head, counted from 0; default: draw all of them", whole()),
    page: Path | None = option(
        "--html",
        "FILE",
        "write a web page with every head of every layer instead of a picture",
        file_name(".html", ".htm"),
    ),
) -> None:
    """Translate a sentence and draw what each word of the translation attended to.

    \b
    Examples:
      transformer-lab heatmap "Ein kleiner Junge spielt draußen mit einem Ball."
      transformer-lab heatmap "Zwei Hunde rennen." --stack encoder --layer 0 --head 1
      transformer-lab heatmap "Zwei Hunde rennen." --html attention.html
    """
    if page is None:  # the page shows all layers and heads
        check_layer_and_head(model, layer, head)
    from transformer_lab.plots import draw_attention, save_figure
    from transformer_lab.plots.page import save_attention_page

    translator = load_model(model)
    check_language([sentence], translator)
    if page is not None:
        save_attention_page(translator, sentence, page)
        print(page)
        suggest(f"open {page} in a browser")
    else:
        save_figure(draw_attention(translator, sentence, stack, layer, head), out)
        print(out)
        suggest("see every head of every layer on one page with --html attention.html")


@command(rich_help_panel=TRANSLATE)
def export(
    checkpoint: Path | None = typer.Argument(
        None, metavar="MODEL", help="folder of a trained model; default: the one that comes with the course"
    ),
    kind: str = option(
        "--format",
        "NAME",
        "ctranslate2 for a server, or page for a web page",
        one_of("ctranslate2", "page"),
        default="ctranslate2",
    ),
    out: Path | None = option(
        "--output", "PATH", "folder to create (default: service), or file (default: translator.html)", new_folder
    ),
) -> None:
    """Export a model to run without PyTorch: on a server with CTranslate2, or in a browser as a web page.

    The web page is a single file that you can send to a friend. It needs no server and no network, and it shows what
    each word attended to. It decodes greedily, with weights in half precision.

    For CTranslate2, the export contains float32 weights and the tokenizer. Greedy decoding yields the same translations
    as here. With a beam, some translations differ but are about as good, because CTranslate2 divides scores by
    length^length_penalty (its default of 1 is close to an alpha of 1.5 here) and stops as soon as beam_size hypotheses
    have finished. With patience=2 it waits for twice as many, which yields better translations.

    \b
    Examples:
      transformer-lab export runs/laptop --format page --output translator.html
      transformer-lab export --format ctranslate2 --output service
    """
    if checkpoint is not None and not checkpoint.is_dir():
        raise InputError(f"there is no folder {checkpoint}: MODEL must be the folder of a trained model")
    if kind == "page":
        out = out or Path("translator.html")
        if out.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"--output must end in .html for a page; got {str(out)!r}")
        from transformer_lab.decoding.page_export import TRAINING, export_page
        from transformer_lab.decoding.translator import PRETRAINED

        export_page(load_model(checkpoint), out, (checkpoint or PRETRAINED) / TRAINING)
        print(out)
        suggest(f"open {out} in a browser")
    else:
        out = out or Path("service")
        if out.exists():
            raise InputError(f"--output must be a new folder; {out} already exists")
        from transformer_lab.decoding.ctranslate2_export import export_ctranslate2

        export_ctranslate2(load_model(checkpoint), out)
        print(out)
        suggest(f"translate with ctranslate2.Translator({str(out)!r}); SERVING.md has a complete example")


# --- train ------------------------------------------------------------------------------------------------------------


@command(rich_help_panel=TRAIN)
@with_preset_options()
def train(
    preset: str = typer.Argument(metavar="PRESET", help="tour, laptop, gpu, gpu-sprint, or paper"),
    output: Path | None = option("--output", "FOLDER", "new folder for the model; default: runs/PRESET", new_folder),
    resume: bool = flag("--resume", "continue the run in the output folder"),
    data_dir: Path | None = DATA_DIR,
    source: str = SOURCE,
    target: str = TARGET,
    device: str | None = option(
        "--device",
        "NAME",
        "cpu, cuda, or a numbered GPU such as cuda:1; default: a GPU if there is one",
        matching(r"cpu|cuda(:\d+)?", "cpu, cuda, or a numbered GPU such as cuda:1"),
    ),
    **fields: str | None,
) -> None:
    """Train a model from a preset.

    The preset supplies all hyperparameters. Each option in the second list below overrides one of them.

    \b
    Presets:
      tour        a small model on synthetic captions; about a minute on two cores
      laptop      the course's model on Multi30k; about 20 minutes on two cores
      gpu         laptop with 30 epochs and R-Drop, for a GPU
      gpu-sprint  laptop with 12 epochs, for a GPU
      paper       the paper's base model and schedule, for a GPU

    \b
    Examples:
      transformer-lab train laptop
      transformer-lab train laptop --epochs 3 --peak-rate 1e-3 --output runs/short
      transformer-lab train laptop --resume
      transformer-lab train laptop --source en --target fr
      transformer-lab train laptop --corpus cmn.txt --source en --target zh
      torchrun --nproc-per-node 2 -m transformer_lab.cli train gpu
    """
    standard = find_preset(preset)
    chosen = override(standard, {name: text for name, text in fields.items() if text is not None})
    if not resume:  # a run can be resumed only with exactly the options that it was started with
        reject_unused_option(standard, chosen)
    check_languages(source, target)
    check_corpus(chosen.corpus, data_dir)
    from transformer_lab.training import train as train_model

    output = output or Path("runs", preset)
    with explaining_interruption(partial(how_to_resume, output, "--resume")):
        record = train_model(
            chosen, output, data_dir=data_dir, resume=resume, source=source, target=target, device=device
        )
    if record:  # under torchrun, only the first process prints
        result = record["result"]
        print(f"{output}: {result['chosen']}, validation BLEU {result['validation_bleu']:.2f}")
        corpus = [] if chosen.corpus == "multi30k" else ["--corpus", chosen.corpus]
        corpus += ["--data-dir", str(data_dir)] if data_dir else []
        evaluation = shlex.join(["transformer-lab", "evaluate", "--model", str(output), *corpus])
        suggest(f"{evaluation} (translate and heatmap take --model, too)")


@command(rich_help_panel=TRAIN)
@with_preset_options(hidden=(*SEARCHED, "validate_every", "schedule", "both_directions"))
def search(
    output: Path = option(
        "--output",
        "FOLDER",
        "new folder, or the folder of a search to continue or join",
        new_folder,
        default=Path("runs/search"),
    ),
    trials: str = option("--trials", "N", "number of training runs to compare", whole(1), default="20"),
    workers: str = option("--workers", "N", "training runs at the same time", whole(1, MOST_WORKERS), default="1"),
    sampler: str = option(
        "--sampler",
        "random|tpe",
        "how to choose values: at random, or near the best trials so far",
        one_of("random", "tpe"),
        default="random",
    ),
    prune: bool = flag(
        "--prune/--no-prune", "stop a trial that scores below the median at the same epoch", default=True
    ),
    finalists: str = option("--finalists", "N", "number of best trials to train again", whole(0), default="3"),
    seeds: str = option("--seeds", "N", "random seeds to train each finalist with", whole(1), default="3"),
    preset: str | None = option("--preset", "PRESET", "preset to start from; default: a model that trains quickly"),
    data_dir: Path | None = DATA_DIR,
    source: str = SOURCE,
    target: str = TARGET,
    **fields: str | None,
) -> None:
    """Search for good hyperparameters, and say how certain the result is.

    The search varies the number of heads and layers, the learning rate, the batch size, dropout, and label smoothing.
    Layers, learning rate, and batch size vary around the preset's values.

    To continue after an interruption, run the same command again. To speed the search up, run it in a second terminal
    as well. With the default corpus, captions, a search takes minutes.

    \b
    Examples:
      transformer-lab search --corpus captions --trials 20
      transformer-lab search --corpus multi30k --trials 40 --workers 2 --output runs/search-multi30k
    """
    given = {name: text for name, text in fields.items() if text is not None}
    check_unsearched(given)
    check_languages(source, target)
    check_corpus(given.get("corpus", "captions"), data_dir)
    standard = find_preset(preset or "laptop")
    reject_unused_option(standard, override(standard, given))  # also rejects wrong values, before the imports below

    from transformer_lab.electives.search import Plan, base_preset
    from transformer_lab.electives.search import search as search_for

    base = find_preset(preset) if preset else base_preset(given.get("corpus", "captions"))
    plan = Plan(
        override(base, given | {"validate_every": "1"}),
        trials=trials,
        sampler=sampler,
        prune=prune,
        finalists=finalists,
        seeds=seeds,
        source=source,
        target=target,
        data_dir=str(data_dir) if data_dir else None,
    )
    again = shlex.join(["transformer-lab", *sys.argv[1:]])
    with (
        explaining_interruption(lambda: f"finished work is kept; continue with: {again}"),
        progress(trials + finalists * seeds, " runs") as bar,
    ):
        say = partial(bar.write, file=sys.stderr)  # prints above the bar
        finished_search = search_for(output, plan, workers, on_trial=say, advance=partial(advance_to, bar))
    print(f"{finished_search.conclusion()}\ntables  {output / 'trials.csv'}, {output / 'finalists.csv'}")
    suggest(f'plot it: from transformer_lab.electives.search import read_search; read_search("{output}")')


# --- teach ------------------------------------------------------------------------------------------------------------


@command(rich_help_panel=TEACH)
def release(
    notebooks: list[str] | None = typer.Argument(
        None, metavar="NOTEBOOK", help="one or more notebooks, such as 03 or 03_masks"
    ),
    out: Path = option("--output", "FOLDER", "folder for the handout", new_folder, default=Path("handout")),
    everything: bool = flag("--all", "release every notebook that has exercises"),
    address: str | None = option("--address", "URL", "repository for students to clone; remembered for later releases"),
) -> None:
    """Prepare notebooks to hand out to students.

    Writes the notebooks, a page that tells students how to submit, and manifest.json, which lists the points.

    \b
    Examples:
      transformer-lab release 03 --output handout
      transformer-lab release --all
    """
    if not notebooks and not everything:
        raise InputError('Which notebook? For example "transformer-lab release 03", or --all')

    from transformer_lab.classroom.course import Course
    from transformer_lab.classroom.release import release as write_release

    course = Course.find()
    names = course.graded if everything else [course.full_name(name) for name in notebooks or []]
    written = [path for name in names for path in write_release(name, out, course, address)]
    print("\n".join(dict.fromkeys(map(str, written))))
    suggest(f"hand out {out}/; when students have submitted: transformer-lab grade SUBMISSIONS")


@command(rich_help_panel=TEACH)
def grade(
    paths: list[Path] | None = typer.Argument(
        None, metavar="PATH", help="notebooks, folders, or zips from Moodle or Canvas"
    ),
    out: Path = option(
        "--output", "FOLDER", "folder for the gradebook and the feedback pages", new_folder, default=Path("grades")
    ),
    resume: bool = flag("--resume", "continue the last run, with the same submissions unless you give others"),
    roster: Path | None = option(
        "--roster", "FILE", "roster, to report who is missing: one name per line, or a table", existing_file
    ),
    exercise: str | None = option(
        "--only", "EXERCISE", "regrade one exercise; you see the changes before they are kept"
    ),
    yes: bool = flag("--yes", "with --only: keep the changes without asking"),
    require_sandbox: bool = flag(
        "--require-sandbox/--without-sandbox",
        "without a sandbox: refuse to grade, or run students' code with your own permissions",
        default=True,
    ),
    jobs: str | None = option("--jobs", "N", "submissions to grade at the same time; default: one per core", whole(1)),
    cluster: str | None = option(
        "--cluster",
        "ADDRESS",
        "grade on a Dask cluster: the address of its scheduler, such as tcp://host:8786",
        matching(r"\w+://.+:\d+", "an address such as tcp://host:8786"),
    ),
) -> None:
    """Grade submissions. You get a gradebook, a feedback page for each student, and a summary for yourself.

    Submissions that have not changed since the last run are not graded again.

    \b
    Examples:
      transformer-lab grade submissions/
      transformer-lab grade moodle.zip --output grades --roster worksheet.csv
      transformer-lab grade --resume
      transformer-lab grade --only causal_mask
    """
    from transformer_lab.classroom.results import require_gradebook

    if roster and exercise:
        raise InputError("--roster cannot be combined with --only: to grade everything, leave out --only")
    if yes and not exercise:
        raise InputError("--yes needs --only, which asks before it keeps changes: leave out --yes")
    if not paths and not resume and not exercise:
        raise InputError('nothing to grade: give files, folders, or zips, such as "transformer-lab grade submissions/"')
    if missing := [path for path in paths or [] if not os.path.lexists(path)]:
        raise InputError(f"{missing[0]}: No such file or directory: give files, folders, or zips")
    if resume or exercise:
        require_gradebook(out, "--resume" if resume else "--only")

    from transformer_lab.doctor import GRADING_PACKAGES, require

    require(GRADING_PACKAGES, "grading")
    from transformer_lab.classroom.batch import grade_batch, grader_for, regrade_exercise
    from transformer_lab.classroom.terminal import as_lines, ask_about, warn_without_sandbox

    paths = paths or []
    warn_about_a_pattern(paths)
    open_grader = warn_without_sandbox(grader_for(jobs, require_sandbox, cluster))
    interrupted = partial(how_to_go_on_grading, out, exercise, require_sandbox)
    with explaining_interruption(interrupted), progress(None, " submissions") as bar:
        advance = partial(advance_to, bar)
        if exercise:

            def approve(changes: list["Change"]) -> bool:
                bar.close()
                return ask_about(changes, yes)

            outcome = regrade_exercise(paths, out, exercise, open_grader, approve, advance=advance)
        else:
            outcome = grade_batch(paths, out, open_grader, resume=resume, roster=roster, advance=advance)
    if outcome:
        print("\n".join(as_lines(outcome)))
        for warning in outcome.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        suggest(f"open {out / 'summary.html'}; the pages for your students are in {out / 'feedback'}")


def warn_about_a_pattern(paths: Sequence[Path]) -> None:
    """Warn if the shell has expanded a pattern like `class/*`, because then each student's folder counts as a class."""
    from transformer_lab.classroom.submissions import folder_of_a_pattern, printable

    if folder := folder_of_a_pattern(paths):
        print(
            f"warning: several of the paths are in {printable(str(folder), 300)}, and each path is read as a whole "
            "class, with a student for every name in it. If each belongs to one student, give the folder itself",
            file=sys.stderr,
        )


def how_to_go_on_grading(out: Path, exercise: str | None, require_sandbox: bool) -> str:
    """Return the message to print after grading was interrupted: what was saved, and how to continue."""
    if exercise:
        return "nothing was written"
    sandbox = [] if require_sandbox else ["--without-sandbox"]
    again = shlex.join(["transformer-lab", "grade", "--output", str(out), "--resume", *sandbox])
    return f"the grades so far are kept; continue with: {again}"


def main() -> None:
    app(prog_name="transformer-lab")


if __name__ == "__main__":
    main()
