"""The command `transformer-lab`: each function reads what was typed, calls the package, and prints.

PyTorch is imported inside the commands that compute, so that `--help` answers at once.
"""

import errno
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from transformer_lab.errors import InputError
from transformer_lab.presets import Preset, find_preset, override, reject_unused_option

if TYPE_CHECKING:
    from transformer_lab.classroom.batch import Change, Grading, OpenGrader
    from transformer_lab.classroom.course import Course
    from transformer_lab.data import Corpus
    from transformer_lab.decoding.translator import Translator


def hide_kind_of_flags(parameters: list[Any]) -> list[Any]:
    """Keep `<bool>` out of the help: a flag takes no value."""
    for parameter in parameters:
        if getattr(parameter, "is_bool_flag", False):
            parameter.metavar = ""
    return parameters


class Commands(typer.core.TyperGroup):
    """Report what the reader can fix in one line on stderr and with a status, never with a traceback."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command:
            hide_kind_of_flags(command.get_params(ctx))
        return command

    def get_params(self, ctx: Any) -> Any:
        return hide_kind_of_flags(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # closed by whoever started us
                sys.stdout.flush()  # while a pipe that nobody reads any more can still be told from an error
            return result
        except InputError as error:
            status, message = 1, str(error)
        except KeyboardInterrupt as interrupt:
            status, message = 130, str(interrupt) or "interrupted"
        except OSError as error:
            if error.filename is not None:
                status, message = 1, f"{error.filename}: {error.strerror}"
            elif error.errno in (errno.ENOSPC, errno.EDQUOT):  # files are named: it is the standard output
                status, message = 1, f"cannot write the output ({error.strerror}): make room, or send it elsewhere"
                sys.stdout = None  # or Python would try again at its end, and fail with a traceback
            else:  # a closed pipe, for instance
                raise
        print(f"transformer-lab: {message}", file=sys.stderr)
        raise typer.Exit(status)


LEARN, TRANSLATE, TRAIN, TEACH = "Learn", "Translate", "Train", "Teach"  # the panels of --help

app = typer.Typer(
    cls=Commands,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    # --out is the old spelling of --output
    context_settings={"token_normalize_func": lambda name: "output" if name == "out" else name},
)

Model = Annotated[
    Path | None, typer.Option("--model", metavar="FOLDER", help="trained model; default: the included one")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="FOLDER", help="folder with corpora; default: download them")
]
Beam = Annotated[
    int, typer.Option("--beam", min=1, max=1000, metavar="N", help="hypotheses to keep; 1 is greedy decoding")
]
Alpha = Annotated[float, typer.Option("--alpha", metavar="X", help="length penalty; larger favors longer sentences")]


def print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"transformer-lab {version('transformer-lab')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def transformer_lab(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Build, train, and inspect the Transformer from "Attention Is All You Need"."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command(
    name="open",
    rich_help_panel=LEARN,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def open_course(
    context: typer.Context,
    fresh: Annotated[
        str | None,
        typer.Option("--fresh", metavar="NOTEBOOK", help="restore one notebook; yours is kept under another name"),
    ] = None,
) -> None:
    """Open your copy of the course, my_course/, in JupyterLab. Other arguments are passed to JupyterLab.

    \b
    Examples:
      transformer-lab open
      transformer-lab open --fresh 03
      transformer-lab open --no-browser --port 8890
    """
    from transformer_lab.doctor import INSTALL, TOUR_NOTEBOOK
    from transformer_lab.my_course import jupyterlab_environment, prepare, refresh

    if not TOUR_NOTEBOOK.is_file():
        raise InputError(f"there is no {TOUR_NOTEBOOK}: the notebooks come with the repository, install from a clone")
    folder, notebooks = TOUR_NOTEBOOK.parent.parent / "my_course", TOUR_NOTEBOOK.parent
    if fresh is not None:
        notebook, kept = refresh(folder, fresh, notebooks)
        print(f"{notebook} is new again" + (f"; your version is now {kept.name}" if kept else ""))
    for name in prepare(folder, notebooks):
        print(f"{name} has a newer text. To get it: transformer-lab open --fresh {name.removesuffix('.ipynb')}")
    try:
        os.environ.update(jupyterlab_environment(folder, os.environ))  # JupyterLab reads them when it is imported
        from jupyterlab.labapp import main as start_jupyterlab
    except ImportError as error:
        raise InputError(f"JupyterLab does not load ({error}): {INSTALL}") from None
    start_jupyterlab([str(folder / TOUR_NOTEBOOK.name), *context.args])


@app.command(rich_help_panel=LEARN)
def doctor(
    verbose: Annotated[bool, typer.Option("--verbose", help="list everything that was checked")] = False,
) -> None:
    """Check that this machine has what the course needs, and say how to fix what is missing.

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
        table.add_row(mark, finding.name, escape(finding.found))
        if finding.advice:
            table.add_row("", "", f"[bold]{escape(finding.advice)}[/]")
    if table.row_count:
        Console().print(table)
    if any(finding.essential for finding in problems):
        raise typer.Exit(1)
    print("Ready, apart from what is listed above." if problems else "Ready. Start with: transformer-lab open")


@app.command(rich_help_panel=LEARN)
def tour(
    output: Annotated[
        Path, typer.Option("--output", metavar="FOLDER", help="folder for the model and its heat map")
    ] = Path("runs/tour"),
) -> None:
    """Train a small model in about a minute, translate with it, score it, and draw its attention.

    \b
    Example:
      transformer-lab tour
    """
    from transformer_lab.tour import tour

    with telling_how_to_go_on(output):
        visit = tour(output)
    for source, translation, reference in visit.examples:
        print(f"German     {source}\nmodel      {translation}\nreference  {reference}\n")
    print(f"{visit.scores}\n\nmodel     {output}\nheat map  {visit.heat_map}")


@app.command(rich_help_panel=TRANSLATE)
def translate(
    sentences: Annotated[
        list[str] | None, typer.Argument(metavar="SENTENCE", help="in quotation marks; default: lines from stdin")
    ] = None,
    model: Model = None,
    beam: Beam = 4,
    alpha: Alpha = 1.5,
) -> None:
    """Translate sentences, one per line.

    \b
    Examples:
      transformer-lab translate "Ein kleiner Junge spielt draußen mit einem Ball."
      transformer-lab translate --model runs/laptop < german.txt > english.txt
    """
    translator = load_model(model)
    sentences = sentences or read_lines()
    refuse_foreign(sentences, translator)
    for translation in translator.translate(sentences, beam_size=beam, alpha=alpha):
        print(translation)


def load_model(folder: Path | None) -> "Translator":
    from transformer_lab.decoding.translator import Translator, load_pretrained

    return Translator.load(folder) if folder else load_pretrained()


def read_lines() -> list[str]:
    """The lines of stdin; bytes that are no UTF-8 become characters that the translator refuses by their line.

    Raises:
        InputError: there is none.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        print("One sentence a line, then Ctrl-D (on Windows Ctrl-Z and Enter):", file=sys.stderr)
    try:
        content = sys.stdin.buffer.read() if sys.stdin is not None else b""
    except OSError:  # as nohup leaves it, it can only be written
        content = b""
    content = content.removeprefix(b"\xef\xbb\xbf")  # the byte-order mark that some programs write
    text = content.decode(errors="surrogateescape").removesuffix("\n")
    if not text:
        raise InputError("no sentence: give one in quotation marks, or lines on stdin")
    return text.split("\n")


def refuse_foreign(sentences: list[str], translator: "Translator") -> None:
    """Where the model knows not a letter or a figure of a sentence, its translation would be an invention.

    Raises:
        InputError: there is such a sentence.
    """
    tokenizer = translator.tokenizer
    for number, ids in enumerate(translator.encode(sentences), start=1):
        tokens = tokenizer.source_tokens(ids[:-1])
        known = [token for token in tokens if token != "<unk>" and not re.fullmatch("<0x..>", token)]
        if len(known) < len(tokens) and not any(character.isalnum() for character in "".join(known)):
            raise InputError(
                f"sentence {number} is foreign to this model, which translates {tokenizer.source} to "
                f"{tokenizer.target}: {sentences[number - 1].strip()[:40]}"
            )


@app.command(rich_help_panel=TRANSLATE)
def evaluate(
    model: Model = None,
    corpus: Annotated[
        str, typer.Option("--corpus", metavar="NAME", help="multi30k, captions, or your own folder or table")
    ] = "multi30k",
    split: Annotated[
        str | None, typer.Option("--split", metavar="NAME", help="such as test_2017_flickr; default: the first one")
    ] = None,
    data_dir: DataDir = None,
    beam: Beam = 4,
    alpha: Alpha = 1.5,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="save the translations to this file, one per line")
    ] = None,
) -> None:
    """Translate a test set and score it with sacreBLEU: cased, lowercased, and chrF, each with its signature.

    \b
    Examples:
      transformer-lab evaluate
      transformer-lab evaluate --model runs/gpu --split test_2017_mscoco --output hypotheses.txt
      transformer-lab evaluate --model runs/chinese --corpus cmn.txt
    """
    from transformer_lab.data import load_corpus
    from transformer_lab.evaluation import score_translations
    from transformer_lab.files import replacing, writing

    translator = load_model(model)
    languages = translator.tokenizer.source, translator.tokenizer.target
    if output:
        with writing(output):  # before minutes of translating
            output.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(output.parent, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    loaded_corpus = load_corpus(corpus, *languages, data_dir)
    pairs = choose_split(loaded_corpus, split)
    try:
        translations = translator.translate([source for source, _ in pairs], beam_size=beam, alpha=alpha)
    except InputError as error:
        raise InputError(f"{loaded_corpus.name}, {split or 'test'}: {error}") from None
    print(score_translations(translations, [reference for _, reference in pairs], translator.tokenizer.target))
    if output:
        with replacing(output) as unfinished:
            unfinished.write_text("".join(f"{translation}\n" for translation in translations), encoding="utf-8")


def choose_split(corpus: "Corpus", name: str | None) -> list[tuple[str, str]]:
    """The test set of that name, or `validation`; without a name the first test set.

    Raises:
        InputError: the corpus has none of that name; the message lists those it has.
    """
    splits = {**corpus.tests, "validation": corpus.validation}
    if name is not None and name not in splits:
        raise InputError(f"{corpus.name} has no split {name!r}: it has {', '.join(splits)}")
    return splits[name] if name else corpus.test


@app.command(rich_help_panel=TRANSLATE)
def heatmap(
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="sentence in quotation marks")],
    out: Annotated[Path, typer.Option("--output", metavar="FILE", help="picture to write, .png or .svg")] = Path(
        "attention.png"
    ),
    model: Model = None,
    stack: Annotated[str, typer.Option("--stack", metavar="NAME", help="cross, encoder, or decoder")] = "cross",
    layer: Annotated[int, typer.Option("--layer", metavar="N", help="layer, counted from 0; -1 is the last")] = -1,
    head: Annotated[int | None, typer.Option("--head", metavar="N", help="head, counted from 0; default: all")] = None,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="instead, write a page with all heads of all layers")
    ] = None,
) -> None:
    """Draw the attention weights of a translation.

    \b
    Examples:
      transformer-lab heatmap "Ein kleiner Junge spielt draußen mit einem Ball."
      transformer-lab heatmap "Zwei Hunde rennen." --stack encoder --layer 0 --head 1 --output encoder.svg
      transformer-lab heatmap "Zwei Hunde rennen." --html attention.html
    """
    from transformer_lab.plots import draw_attention, save_figure
    from transformer_lab.plots.page import save_attention_page

    translator = load_model(model)
    refuse_foreign([sentence], translator)
    if page is not None:
        save_attention_page(translator, sentence, page)
        print(page)
        return
    save_figure(draw_attention(translator, sentence, stack, layer, head), out)
    print(out)


@app.command(rich_help_panel=TRANSLATE)
def export(
    checkpoint: Annotated[
        Path | None, typer.Argument(metavar="CHECKPOINT", help="trained model; default: the included one")
    ] = None,
    kind: Annotated[
        str, typer.Option("--format", metavar="NAME", help="ctranslate2 for servers, page for a browser")
    ] = "ctranslate2",
    out: Annotated[
        Path | None,
        typer.Option("--output", metavar="PATH", help="new folder (default: service) or file (translator.html)"),
    ] = None,
) -> None:
    """Export a model for CTranslate2, an inference engine in C++, or as a page that translates in a browser.

    The page is a single file that you can send to a friend. It needs no server and no network, and it shows what each
    word attended to while it was written. It decodes greedily, with weights in half precision.

    For CTranslate2, the model is written in float32 and with its tokenizer. Greedy decoding gives the same translations
    there. With a beam, some differ and are about as good: CTranslate2 divides scores by length^length_penalty (1, its
    default, is close to an alpha of 1.5 here) and stops as soon as beam_size hypotheses have finished. With patience=2,
    it waits for twice as many, which gives better translations.

    \b
    Examples:
      transformer-lab export runs/laptop --format page --output translator.html
      transformer-lab export --format ctranslate2 --output service
    """
    if kind == "page":
        from transformer_lab.decoding.page_export import TRAINING, export_page
        from transformer_lab.decoding.translator import PRETRAINED

        out = out or Path("translator.html")
        export_page(load_model(checkpoint), out, (checkpoint or PRETRAINED) / TRAINING)
    elif kind == "ctranslate2":
        from transformer_lab.decoding.ctranslate2_export import export_ctranslate2

        out = out or Path("service")
        export_ctranslate2(load_model(checkpoint), out)
    else:
        raise InputError(f"no format {kind!r}: choose ctranslate2 or page")
    print(out)


def with_preset_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes `**fields`, an option for each field of a preset that has a default."""
    kinds = get_type_hints(Preset)
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option(
                    f"--{field.name.replace('_', '-')}",
                    metavar=METAVARS.get(kinds[field.name]) or "|".join(get_args(kinds[field.name])),
                    help=escape(field.metadata["help"]),
                    rich_help_panel="Hyperparameters (the preset supplies the defaults)",
                ),
            ],
        )
        for field in fields(Preset)
        if field.name != "name"
    ]
    signature = inspect.signature(command)
    fixed = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=[*fixed, *options])
    command.__annotations__ |= {option.name: option.annotation for option in options}
    return command


@contextmanager
def naming_options() -> Iterator[None]:
    """Begin an error about a field with the option that was typed: `--max-tokens is …`."""
    try:
        yield
    except InputError as error:
        name, _, rest = str(error).partition(" ")
        if name not in {field.name for field in fields(Preset)}:
            raise
        raise InputError(f"--{name.replace('_', '-')} {rest}") from None


METAVARS = {
    str: "NAME",
    int: "N",
    float: "X",
    bool: "true|false",
    int | None: "N|none",
    tuple[float, float]: "X,X",
}


@app.command(rich_help_panel=TRAIN)
@with_preset_options
def train(
    preset: Annotated[str, typer.Argument(metavar="PRESET", help="tour, laptop, gpu, gpu-sprint or paper")],
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FOLDER", help="a new folder; default: runs/PRESET")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in the output folder")] = False,
    data_dir: DataDir = None,
    source: Annotated[str, typer.Option("--source", metavar="CODE", help="language to translate from")] = "de",
    target: Annotated[str, typer.Option("--target", metavar="CODE", help="language to translate into")] = "en",
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="cpu, cuda, or cuda:1; default: a GPU if there is one"),
    ] = None,
    **fields: str | None,
) -> None:
    """Train a model from a preset. Options override the preset's hyperparameters.

    \b
    Examples:
      transformer-lab train laptop
      transformer-lab train laptop --epochs 3 --peak-rate 1e-3 --output runs/short
      transformer-lab train laptop --resume
      transformer-lab train laptop --source en --target fr
      transformer-lab train laptop --corpus cmn.txt --source en --target zh
      torchrun --nproc-per-node 2 -m transformer_lab.cli train gpu
    """
    from transformer_lab.training import train as train_model

    standard = find_preset(preset)
    with naming_options():
        chosen = override(standard, {name: text for name, text in fields.items() if text is not None})
    if not resume:  # a run that was begun must be named as it was
        reject_unused_option(standard, chosen)
    output = output or Path("runs", preset)
    with telling_how_to_go_on(output, "--resume"):
        record = train_model(
            chosen, output, data_dir=data_dir, resume=resume, source=source, target=target, device=device
        )
    if record:  # of several processes, the first one speaks
        result = record["result"]
        print(f"{output}: {result['chosen']}, validation BLEU {result['validation_bleu']:.2f}")


@app.command(rich_help_panel=TRAIN)
@with_preset_options
def search(
    output: Annotated[
        Path, typer.Option("--output", metavar="FOLDER", help="a new folder, or that of a search to continue or join")
    ] = Path("runs/search"),
    trials: Annotated[int, typer.Option("--trials", metavar="N", help="training runs to compare")] = 20,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="processes that train in parallel")] = 1,
    sampler: Annotated[
        str, typer.Option("--sampler", metavar="random|tpe", help="sample uniformly, or near the best trials so far")
    ] = "random",
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="stop trials whose score is below the median at the same epoch")
    ] = True,
    finalists: Annotated[int, typer.Option("--finalists", metavar="N", help="retrain the best N trials")] = 3,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="seeds to retrain each finalist with")] = 3,
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="PRESET", help="preset to start from; default: a short run")
    ] = None,
    data_dir: DataDir = None,
    source: Annotated[str, typer.Option("--source", metavar="CODE", help="language to translate from")] = "de",
    target: Annotated[str, typer.Option("--target", metavar="CODE", help="language to translate into")] = "en",
    **fields: str | None,
) -> None:
    """Search for the best hyperparameters, and say how certain the result is.

    The search covers heads, layers, learning rate, batch size, dropout, and label smoothing. Learning rate, batch size,
    and layers are sampled around the preset's values. To continue after an interruption, run the same command again; to
    add another process, run it in a second terminal. The default corpus is captions, which takes minutes.

    \b
    Examples:
      transformer-lab search --corpus captions --trials 20
      transformer-lab search --corpus multi30k --trials 40 --workers 2 --output runs/search-multi30k
    """
    given = {name: text for name, text in fields.items() if text is not None}
    for name in ("n_heads", "dropout", "label_smoothing", "validate_every"):
        if name in given:
            says = "trials are compared after every epoch" if name == "validate_every" else "it is searched"
            raise InputError(f"--{name.replace('_', '-')} cannot be given to a search: {says}; leave it out")

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

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        found = search_for(output, plan, workers, on_trial=say)
    except KeyboardInterrupt:
        command = shlex.join(["transformer-lab", *sys.argv[1:]])
        raise KeyboardInterrupt(f"interrupted; what is done is kept, go on with: {command}") from None
    print(f"{found.conclusion()}\ntables  {output / 'trials.csv'}, {output / 'finalists.csv'}")


@contextmanager
def telling_how_to_go_on(output: Path, *option: str) -> Iterator[None]:
    """Say with an interruption which command takes up what was trained so far."""
    try:
        yield
    except KeyboardInterrupt:
        if not (output / "training.json").exists():
            raise KeyboardInterrupt("interrupted; nothing was trained yet") from None
        if int(os.environ.get("RANK", "0")):  # of torchrun: the first process speaks for all
            raise
        arguments = [argument for argument in sys.argv[1:] if argument not in option]
        command = shlex.join(["transformer-lab", *arguments, *option])
        if "RANK" in os.environ:
            command = "the same torchrun command and --resume"
        raise KeyboardInterrupt(f"interrupted; go on after the last finished epoch with: {command}") from None


@app.command(rich_help_panel=TEACH)
def release(
    notebooks: Annotated[
        list[str] | None, typer.Argument(metavar="NOTEBOOK", help="one or more, for example 03 or 03_masks")
    ] = None,
    out: Annotated[Path, typer.Option("--output", metavar="FOLDER", help="folder for the handout")] = Path("handout"),
    everything: Annotated[bool, typer.Option("--all", help="release every notebook that has exercises")] = False,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="URL", help="repository that students clone; kept for later releases"),
    ] = None,
) -> None:
    """Write the handout for students: notebooks, a page on how to submit, and a manifest with points and checksums.

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


@app.command(rich_help_panel=TEACH)
def grade(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="notebooks, folders, or zips from Moodle or Canvas")
    ] = None,
    out: Annotated[
        Path, typer.Option("--output", metavar="FOLDER", help="folder for the gradebook and the feedback pages")
    ] = Path("grades"),
    resume: Annotated[bool, typer.Option("--resume", help="continue the last run; PATH is optional")] = False,
    roster: Annotated[
        Path | None,
        typer.Option("--roster", metavar="FILE", help="class roster, to report who is missing: names or a table"),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="EXERCISE", help="regrade one exercise; shows the changes first")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="with --only: accept the changes without asking")] = False,
    require_sandbox: Annotated[
        bool,
        typer.Option(
            "--require-sandbox/--without-sandbox",
            help="if no sandbox is available: refuse, or run students' code with your permissions",
        ),
    ] = True,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, metavar="N", help="submissions graded at once; default: one per core")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="ADDRESS", help="address of a Dask scheduler, for example tcp://host:8786")
    ] = None,
) -> None:
    """Grade submissions: a gradebook, a feedback page per student, and a summary for you.

    Submissions that have not changed since the last run are not graded again.

    \b
    Examples:
      transformer-lab grade handed_in/
      transformer-lab grade moodle.zip --output grades --roster worksheet.csv
      transformer-lab grade --resume
      transformer-lab grade --only causal_mask
    """
    from transformer_lab.classroom.batch import grade_batch, grader_for, regrade_exercise
    from transformer_lab.classroom.submissions import folder_of_a_pattern, printable
    from transformer_lab.classroom.terminal import as_lines, ask_about, progress_bar

    if roster and only:
        raise InputError("--roster goes with a run of everything: leave out --only")
    if folder := folder_of_a_pattern(paths or []):
        print(
            f"warning: several paths lie in {printable(str(folder), 300)}, and each is read as a class's: the names in "
            "it become students. If each is one student's, give the folder itself",
            file=sys.stderr,
        )
    open_grader = warning_without_sandbox(grader_for(jobs, require_sandbox, cluster))
    with telling_what_is_kept(out, only, require_sandbox), progress_bar() as bar:
        if only:

            def approve(changes: list["Change"]) -> bool:
                bar.stop()
                return ask_about(changes, yes)

            outcome = regrade_exercise(paths or [], out, only, open_grader, approve, advance=bar.advance_to)
        else:
            outcome = grade_batch(paths or [], out, open_grader, resume=resume, roster=roster, advance=bar.advance_to)
    if outcome:
        for line in as_lines(outcome):
            print(line)
        for warning in outcome.warnings:
            print(f"warning: {warning}", file=sys.stderr)


def warning_without_sandbox(open_grader: "OpenGrader") -> "OpenGrader":
    """Open graders with a warning where they have no sandbox, before they run anything."""

    @contextmanager
    def open_and_warn(seed: int, course: "Course") -> Iterator["Grading"]:
        with open_grader(seed, course) as grader:
            if not grader.sandboxed:
                print("warning: there is no sandbox: students' code runs with your rights", file=sys.stderr)
            yield grader

    return open_and_warn


@contextmanager
def telling_what_is_kept(out: Path, only: str | None, require_sandbox: bool) -> Iterator[None]:
    """Say with an interruption what is kept, and which command goes on."""
    try:
        yield
    except KeyboardInterrupt:
        sandbox = [] if require_sandbox else ["--without-sandbox"]
        command = shlex.join(["transformer-lab", "grade", "--output", str(out), "--resume", *sandbox])
        kept = "nothing was written" if only else f"what is graded is kept; go on with: {command}"
        raise KeyboardInterrupt(f"interrupted; {kept}") from None


def main() -> None:
    """Entry point of the command."""
    app(prog_name="transformer-lab")


if __name__ == "__main__":
    main()
