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


class Commands(typer.core.TyperGroup):
    """Whatever the reader can mend is one line on stderr and a status, never a traceback."""

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


app = typer.Typer(
    cls=Commands, no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
)

Model = Annotated[
    Path | None, typer.Option("--model", metavar="FOLDER", help="A trained model, if not the one that is included.")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="FOLDER", help="Where corpora lie, if not to be downloaded.")
]
Beam = Annotated[
    int, typer.Option("--beam", min=1, max=1000, metavar="N", help="Hypotheses to keep; 1 decodes greedily.")
]
Alpha = Annotated[float, typer.Option("--alpha", metavar="X", help="Length penalty; more makes longer sentences.")]


def print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"transformer-lab {version('transformer-lab')}")
        raise typer.Exit


@app.callback()
def transformer_lab(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Build, train and look into the Transformer of "Attention Is All You Need"."""


@app.command()
def doctor() -> None:
    """See whether this machine has what the course needs, and what to do about the rest.

    \b
    Example:
      transformer-lab doctor
    """
    from transformer_lab.doctor import examine

    table = Table(box=None, show_header=False, pad_edge=False)
    findings = examine()
    for finding in findings:
        mark = "[green]OK[/]" if finding.ok else "[red]MISSING[/]" if finding.essential else "[yellow]TO DO[/]"
        table.add_row(mark, finding.name, escape(finding.found))
        if finding.advice:
            table.add_row("", "", f"[bold]{escape(finding.advice)}[/]")
    Console().print(table)
    if any(finding.essential and not finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command()
def tour(
    output: Annotated[
        Path, typer.Option("--output", metavar="FOLDER", help="Where the model and its heat map go.")
    ] = Path("runs/tour"),
) -> None:
    """Train a small model in about a minute, translate with it, score it, and draw what it looks at.

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
                    rich_help_panel="Fields of the preset",
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


METAVARS = {
    str: "NAME",
    int: "N",
    float: "X",
    bool: "true|false",
    int | None: "N|none",
    tuple[float, float]: "X,X",
}


@app.command()
@with_preset_options
def train(
    preset: Annotated[str, typer.Argument(metavar="PRESET", help="tour, laptop, gpu, gpu-sprint or paper.")],
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FOLDER", help="A new folder; without, runs/PRESET.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the output folder.")] = False,
    data_dir: DataDir = None,
    source: Annotated[str, typer.Option("--source", metavar="CODE", help="Language to translate from.")] = "de",
    target: Annotated[str, typer.Option("--target", metavar="CODE", help="Language to translate into.")] = "en",
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="cpu, cuda or cuda:1; without, a GPU if there is one."),
    ] = None,
    **fields: str | None,
) -> None:
    """Train a preset. Every field of it can be given another value.

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


@app.command()
@with_preset_options
def search(
    output: Annotated[
        Path, typer.Option("--output", metavar="FOLDER", help="A new folder, or a search to go on with or to join.")
    ] = Path("runs/search"),
    trials: Annotated[int, typer.Option("--trials", metavar="N", help="Trainings to compare.")] = 20,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="Processes that train at once.")] = 1,
    sampler: Annotated[
        str, typer.Option("--sampler", metavar="random|tpe", help="Draw evenly, or where it has been good so far.")
    ] = "random",
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="Stop trials that are below the median after the same epoch.")
    ] = True,
    finalists: Annotated[int, typer.Option("--finalists", metavar="N", help="The best so many are trained again.")] = 3,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="So often, each time with another seed.")] = 3,
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="PRESET", help="What to start from, if not a short training.")
    ] = None,
    data_dir: DataDir = None,
    source: Annotated[str, typer.Option("--source", metavar="CODE", help="Language to translate from.")] = "de",
    target: Annotated[str, typer.Option("--target", metavar="CODE", help="Language to translate into.")] = "en",
    **fields: str | None,
) -> None:
    """Search for heads, layers, learning rate, batch size, dropout and smoothing, and say how sure the result is.

    The same command again goes on after an interruption; in another terminal it joins in. Learning rate, batch size and
    layers are looked for around those of the preset. Without --corpus and --preset it is captions, which takes minutes.
    What is searched, and --validate-every, cannot be given.

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


@app.command()
def translate(
    sentences: Annotated[
        list[str] | None, typer.Argument(metavar="SENTENCE", help="In quotation marks; without, lines of stdin.")
    ] = None,
    model: Model = None,
    beam: Beam = 4,
    alpha: Alpha = 1.5,
) -> None:
    """Translate sentences, one translation a line.

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


@app.command()
def evaluate(
    model: Model = None,
    corpus: Annotated[
        str, typer.Option("--corpus", metavar="NAME", help="multi30k, captions, or a folder or table of your own.")
    ] = "multi30k",
    split: Annotated[
        str | None, typer.Option("--split", metavar="NAME", help="Such as test_2017_flickr; without, the first test.")
    ] = None,
    data_dir: DataDir = None,
    beam: Beam = 4,
    alpha: Alpha = 1.5,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Keep the translations, one a line.")
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


@app.command()
def heatmap(
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="In quotation marks.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The picture, .png or .svg.")] = Path(
        "attention.png"
    ),
    model: Model = None,
    stack: Annotated[str, typer.Option("--stack", metavar="NAME", help="cross, encoder or decoder.")] = "cross",
    layer: Annotated[int, typer.Option("--layer", metavar="N", help="From 0; -1 is the last.")] = -1,
    head: Annotated[int | None, typer.Option("--head", metavar="N", help="From 0; without, all.")] = None,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="All heads of all layers on one page instead.")
    ] = None,
) -> None:
    """Draw what the model looks at while it translates a sentence.

    \b
    Examples:
      transformer-lab heatmap "Ein kleiner Junge spielt draußen mit einem Ball."
      transformer-lab heatmap "Zwei Hunde rennen." --stack encoder --layer 0 --head 1 --out encoder.svg
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


@app.command()
def export(
    checkpoint: Annotated[
        Path | None, typer.Argument(metavar="CHECKPOINT", help="A trained model, if not the one that is included.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--format", metavar="NAME", help="ctranslate2, for services, or page, for a browser.")
    ] = "ctranslate2",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="A new folder (service), or an HTML file (translator.html)."),
    ] = None,
) -> None:
    """Write a model for CTranslate2, an engine in C++ for services, or as a page that translates in a browser.

    The page is a single file that you can send to a friend: it needs no server and no network, and shows what each word
    attended to while it was written. It decodes greedily, with weights in half precision.

    For CTranslate2 the model is written in float32 and with its tokenizer. Greedy decoding gives the same translations
    there. A beam gives some others, about as good: CTranslate2 divides scores by length^length_penalty (1, its default,
    is close to an alpha of 1.5 here), and stops as soon as beam_size hypotheses have finished: patience=2 makes it wait
    for twice as many, which is better.

    \b
    Examples:
      transformer-lab export runs/laptop --format page --out translator.html
      transformer-lab export --format ctranslate2 --out service
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


@app.command()
def release(
    notebooks: Annotated[
        list[str] | None, typer.Argument(metavar="NOTEBOOK", help="Such as 03 or 03_masks; one or more.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the handout goes.")] = Path("handout"),
    everything: Annotated[bool, typer.Option("--all", help="All notebooks that have exercises.")] = False,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="URL", help="What students clone; stands on their page from then on."),
    ] = None,
) -> None:
    """Write what students get: notebooks, a page that says how to hand in, and a list with points and checksums.

    \b
    Examples:
      transformer-lab release 03 --out handout
      transformer-lab release --all
    """
    from transformer_lab.classroom.course import Course
    from transformer_lab.classroom.release import release as write_release

    course = Course.find()
    names = course.graded if everything else [course.full_name(name) for name in notebooks or []]
    if not names:
        raise InputError(f"no notebook: give one or more of {', '.join(course.names)}, or --all")
    written = [path for name in names for path in write_release(name, out, course, address)]
    print("\n".join(dict.fromkeys(map(str, written))))


@app.command()
def grade(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Notebooks, folders, zips of Moodle or Canvas.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where the gradebook and the reports go.")
    ] = Path("grades"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last run; PATH may be left out.")] = False,
    roster: Annotated[
        Path | None,
        typer.Option("--roster", metavar="FILE", help="The class, a name a line or a table: says who is missing."),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="EXERCISE", help="Grade one exercise anew; shows changes first.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --only: keep the changes without a question.")] = False,
    require_sandbox: Annotated[
        bool,
        typer.Option(
            "--require-sandbox/--without-sandbox",
            help="Where there can be no sandbox: refuse, or run students' code with your rights.",
        ),
    ] = True,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, metavar="N", help="Submissions at once; without, one a processor.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="ADDRESS", help="A Dask scheduler, such as tcp://host:8786.")
    ] = None,
) -> None:
    """Grade what students handed in: a gradebook, a page of feedback for each, and a summary for you.

    What has not changed since it was graded is not graded again.

    \b
    Examples:
      transformer-lab grade handed_in/
      transformer-lab grade moodle.zip --out grades --roster worksheet.csv
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
        command = shlex.join(["transformer-lab", "grade", "--out", str(out), "--resume", *sandbox])
        kept = "nothing was written" if only else f"what is graded is kept; go on with: {command}"
        raise KeyboardInterrupt(f"interrupted; {kept}") from None


@app.command(name="open", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def open_course(context: typer.Context) -> None:
    """Open the course in JupyterLab. Further arguments go to JupyterLab.

    \b
    Examples:
      transformer-lab open
      transformer-lab open --no-browser --port 8890
    """
    from transformer_lab.doctor import INSTALL, TOUR_NOTEBOOK

    try:
        from jupyterlab.labapp import main as start_jupyterlab
    except ImportError as error:
        raise InputError(f"JupyterLab does not load ({error}): {INSTALL}") from None
    if not TOUR_NOTEBOOK.is_file():
        raise InputError(f"there is no {TOUR_NOTEBOOK}: the notebooks come with the repository, install from a clone")
    start_jupyterlab([str(TOUR_NOTEBOOK), *context.args])


def main() -> None:
    """Entry point of the command."""
    app(prog_name="transformer-lab")


if __name__ == "__main__":
    main()
