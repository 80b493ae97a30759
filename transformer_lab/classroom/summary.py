"""`summary.html` for the instructor: how exercises went, what was misunderstood, who is stuck where, what to review."""

import atexit
import base64
import io
import os
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from transformer_lab.classroom.feedback import sentences
from transformer_lab.classroom.gradebook import (
    ABSENT,
    UNGUARDED,
    Entry,
    by_student,
    columns,
    failed_itself,
    number,
    remarks,
)
from transformer_lab.classroom.pages import SIGNS, STOPPED, badge, page, person, safe, table
from transformer_lab.classroom.results import ExerciseResult
from transformer_lab.classroom.roster import NOT_ASKED, Attendance
from transformer_lab.classroom.temporary_folders import temporary_folder
from transformer_lab.classroom.writing import on_screen
from transformer_lab.exercises.report import prose

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Outcomes and their colours (Okabe and Ito): they differ in lightness too, and in their place in every bar.
OUTCOMES = {
    "all points": "#0072b2",
    "some points": "#56b4e9",
    "no points": "#e69f00",
    "not attempted": "#b8b8b8",
    "stopped": "#d55e00",
}
BAR = "#0072b2"
MOST_MISCONCEPTIONS = 12  # in the chart; the table has all
OPEN_UP_TO = 40  # students: a longer table is folded

THEMES = {"light": ("#1b1f24", "#d0d7de"), "dark": ("#e6e8eb", "#3a424c")}  # ink, lines


def summary_page(entries: Sequence[Entry], names: Mapping[str, str], attendance: Attendance = NOT_ASKED) -> str:
    """The page.

    Args:
        entries: What counts.
        names: Student to the name of the page in `feedback/`, without its suffix.
        attendance: Who of the class handed in nothing, and who is not on its list.
    """
    students = by_student(entries)
    links = {
        student: f'<a href="feedback/{quote(name)}.html">{person(student)}</a>'
        for student, name in names.items()
        if student in students
    }
    refused = len(entries) - len(_gradable(entries))
    without = f" ({refused} could not be graded)" if refused else ""
    parts = [
        "<h1>Summary</h1>",
        f'<p class="soft">{_count(len(students), "student")}, {_count(len(entries), "notebook")}{without}, '
        f"transformer-lab {safe(version('transformer-lab'))}. The table is gradebook.csv.</p>",
        *_warnings(entries, links),
        *_exercises(entries),
        *_totals(entries),
        *_misconceptions(entries, links),
        *_stuck(entries, links),
        *_review(entries, links),
        *_files(entries, links),
        *_attendance(attendance, links),
        *_grid(students, entries, links),
    ]
    return page("Summary", "\n".join(parts))


def _gradable(entries: Sequence[Entry]) -> list[Entry]:
    """What means are of. A file that could not be graded belongs to no notebook, and is no notebook with 0 points."""
    return [entry for entry in entries if entry.result.exercises]


def _warnings(entries: Sequence[Entry], links: Mapping[str, str]) -> list[str]:
    parts = []
    unguarded = [entry for entry in entries if not entry.sandboxed]
    if unguarded:
        parts.append(
            f'<p class="warning"><b>{_count(len(unguarded), "notebook")} {UNGUARDED}.</b> Their code ran with your '
            "rights, and could have read or changed what you can. Points of honest code are the same.</p>"
        )
    failed = {entry.student: links[entry.student] for entry in entries if failed_itself(entry.result)}
    if failed:
        parts.append(
            f'<p class="warning"><b>The grader itself failed</b> for {", ".join(failed.values())}. Run it again: it '
            "repeats nothing else.</p>"
        )
    return parts


def outcome(result: ExerciseResult) -> str:
    """What became of an exercise, in one of `OUTCOMES`."""
    if result.state == "not attempted":
        return "not attempted"
    if result.state not in ("passed", "failed", "not checked"):
        return "stopped"
    return "all points" if result.earned >= result.possible else "some points" if result.earned > 0 else "no points"


def _exercises(entries: Sequence[Entry]) -> list[str]:
    order = list(columns(entries))
    results = [(result.exercise, outcome(result)) for entry in entries for result in entry.result.exercises]
    if not results:
        return []
    counts = Counter(results)
    handed_in = Counter(exercise for exercise, _ in results)
    words = "; ".join(f"{name}: {counts[name, 'all points']} of {handed_in[name]} with all points" for name in order)

    def draw(axes: "Axes") -> None:
        import pandas
        import seaborn

        frame = pandas.DataFrame(results, columns=["exercise", "outcome"])
        frame["exercise"] = pandas.Categorical(frame["exercise"], order)
        seaborn.histplot(
            frame,
            y="exercise",
            hue="outcome",
            hue_order=list(OUTCOMES)[::-1],  # the first of a stack is drawn last
            palette=OUTCOMES,
            multiple="stack",
            shrink=0.75,
            alpha=1,
            edgecolor="none",
            ax=axes,
        )
        axes.set(xlabel="students", ylabel="")
        axes.xaxis.get_major_locator().set_params(integer=True)
        seaborn.move_legend(axes, "lower center", bbox_to_anchor=(0.5, 1), ncol=5, title=None, reverse=True)

    rows = []
    for name, points in columns(entries).items():
        earned = [result.earned for entry in entries for result in entry.result.exercises if result.exercise == name]
        cells = [str(counts[name, kind]) for kind in OUTCOMES]
        mean = statistics.fmean(earned)
        rows.append([f"<code>{safe(name)}</code>", number(points), number(mean), *cells])
    head = ["exercise", "#points", "#mean", *(f"#{kind}" for kind in OUTCOMES)]
    picture = chart(f"Students by what they earned. {words}.", draw, 1.1 + 0.33 * len(order))
    told = (
        "<p>Stopped: timed out, killed, out of memory, or the grader failed. "
        "Means are of the notebooks that could be graded.</p>"
    )
    return [
        "<h2>How each exercise went</h2>",
        told,
        picture,
        f"<details><summary>The numbers</summary>{table(head, rows)}</details>",
    ]


def _totals(entries: Sequence[Entry]) -> list[str]:
    graded = _gradable(entries)
    possible = sum(columns(graded).values())
    if not possible:
        return []
    totals = [sum(entry.result.earned for entry in handed_in) for handed_in in by_student(graded).values()]
    of_notebook: dict[str, list[Entry]] = {}
    for entry in sorted(graded, key=lambda entry: entry.notebook):
        of_notebook.setdefault(entry.notebook, []).append(entry)
    mean, median = number(statistics.fmean(totals)), number(statistics.median(totals))
    words = (
        f"Of {_count(len(totals), 'student')} with a notebook that could be graded, the mean is {mean} of "
        f"{number(possible)} points, the median {median}; from {number(min(totals))} to {number(max(totals))}."
    )
    several = []
    if len(of_notebook) > 1:
        words = f"{words} All notebooks are counted together here, and one that is missing with 0."
        rows = []
        for name, handed_in in of_notebook.items():
            earned = [entry.result.earned for entry in handed_in]
            most = sum(columns(handed_in).values())
            numbers = [most, statistics.fmean(earned), statistics.median(earned), min(earned), max(earned)]
            rows.append([f"<code>{safe(name)}</code>", str(len(handed_in)), *map(number, numbers)])
        head = ["notebook", "#could be graded", "#points", "#mean", "#median", "#least", "#most"]
        several = [table(head, rows)]

    def draw(axes: "Axes") -> None:
        import seaborn

        bins = min(int(possible) if possible == int(possible) else 20, 20)
        seaborn.histplot(x=totals, bins=bins, binrange=(0, possible), color=BAR, alpha=1, edgecolor="none", ax=axes)
        axes.set(xlabel=f"points, of {number(possible)}", ylabel="students", xlim=(0, possible))
        axes.yaxis.get_major_locator().set_params(integer=True)

    picture = chart(f"Histogram of the points. {words}", draw, 2.6)
    return ["<h2>Points of each student</h2>", *several, f"<p>{words}</p>", picture]


def _misconceptions(entries: Sequence[Entry], links: Mapping[str, str]) -> list[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        for result in entry.result.exercises:
            for slug in result.misconceptions:
                found.setdefault((result.exercise, slug), []).append(entry.student)
    if not found:
        return []
    ranked = sorted(found, key=lambda key: (-len(found[key]), key))
    shown = ranked[:MOST_MISCONCEPTIONS]
    labels = [on_screen(f"{slug} ({exercise})").replace("$", "") for exercise, slug in shown]  # "$" begins a formula
    counts = [len(found[key]) for key in shown]
    words = "; ".join(f"{label}: {count}" for label, count in zip(labels, counts, strict=True))

    def draw(axes: "Axes") -> None:
        import seaborn

        seaborn.barplot(x=counts, y=labels, color=BAR, saturation=1, edgecolor="none", orient="h", width=0.7, ax=axes)
        axes.set(xlabel="students", ylabel="")
        axes.xaxis.get_major_locator().set_params(integer=True)

    rows = []
    for exercise, slug in ranked:
        says = prose(sentences(exercise).get(slug, slug))
        who = _people(found[exercise, slug], links)
        rows.append([str(len(found[exercise, slug])), f"<code>{safe(exercise)}</code>", f"<p>{says}</p>{who}"])
    return [
        "<h2>The most common mistakes</h2>",
        chart(f"Students by mistake. {words}.", draw, 0.8 + 0.3 * len(shown)),
        table(["#students", "exercise", "what was done"], rows),
    ]


def _stuck(entries: Sequence[Entry], links: Mapping[str, str]) -> list[str]:
    """By exercise, those for whom it is the first of its notebook that does not pass."""
    stuck: dict[str, list[tuple[str, ExerciseResult]]] = {}
    for entry in entries:
        first = next((result for result in entry.result.exercises if result.state != "passed"), None)
        if first is not None and any(result.state != "not attempted" for result in entry.result.exercises):
            stuck.setdefault(first.exercise, []).append((entry.student, first))
    rows = []
    for name in columns(entries):
        if name in stuck:
            states = Counter(result.state for _, result in stuck[name])
            said = ", ".join(f"{count}&nbsp;×&nbsp;{badge(state)}" for state, count in states.most_common())
            who = _people([student for student, _ in stuck[name]], links)
            rows.append([f"<code>{safe(name)}</code>", str(len(stuck[name])), said, who])
    if not rows:
        return []
    head = ["first exercise that did not pass", "#students", "how it ended", "who"]
    return ["<h2>Who is stuck where</h2>", table(head, rows)]


def _review(entries: Sequence[Entry], links: Mapping[str, str]) -> list[str]:
    groups = {
        (result.exercise, tuple(sorted((entry.student, *entry.similar[result.exercise]))))
        for entry in entries
        for result in entry.result.exercises
        if result.exercise in entry.similar
    }
    flags = [
        [links[entry.student], f"<code>{safe(result.exercise)}</code>", prose_list(result.flags)]
        for entry in entries
        for result in entry.result.exercises
        if result.flags
    ]
    parts = []
    if flags:
        parts += ["<h3>Library answers, and what is unusual</h3>", table(["student", "exercise", "where"], flags)]
    if groups:
        rows = [
            [f"<code>{safe(exercise)}</code>", str(len(alike)), _people(alike, links)]
            for exercise, alike in sorted(groups)
        ]
        parts += ["<h3>Nearly the same text</h3>", table(["exercise", "#answers", "who"], rows)]
    if not parts:
        return []
    told = "<p>Points are kept: whether something is wrong here is for you to say.</p>"
    return ["<h2>To be reviewed</h2>", told, *parts]


def prose_list(lines: Sequence[str]) -> str:
    """Sentences as HTML, one below the other."""
    return "<br>".join(prose(line) for line in lines)


def _files(entries: Sequence[Entry], links: Mapping[str, str]) -> list[str]:
    rows = [
        [links[entry.student], safe(entry.notebook or "not gradable"), "<br>".join(map(safe, remarks(entry)))]
        for entry in entries
        if remarks(entry)
    ]
    return ["<h2>Files with remarks</h2>", table(["student", "notebook", "remark"], rows)] if rows else []


def _attendance(attendance: Attendance, links: Mapping[str, str]) -> list[str]:
    rows = [
        [title, str(len(students)), _people(students, links, between="; ")]
        for title, students in ((ABSENT, attendance.absent), ("not on the list", attendance.unlisted))
        if students
    ]
    return ["<h2>The list of the class</h2>", table(["", "#students", "who"], rows)] if rows else []


def _grid(students: Mapping[str, Sequence[Entry]], entries: Sequence[Entry], links: Mapping[str, str]) -> list[str]:
    names = list(columns(entries))
    if not names:
        return []
    rows = []
    for student, handed_in in students.items():
        results = {result.exercise: result for entry in handed_in for result in entry.result.exercises}
        cells = [_sign(results[name]) if name in results else "" for name in names]
        earned = sum(result.earned for result in results.values())
        rows.append([links[student], *cells, f"<b>{number(earned)}</b>"])
    fold = "<details open>" if len(rows) <= OPEN_UP_TO else "<details>"
    head = ["student", *(f"<code>{safe(name)}</code>" for name in names), "points"]
    key = ", ".join(badge(state) for state in ("passed", "failed", "not attempted", "timed out"))
    return [
        "<h2>Everyone</h2>",
        f'<p class="small">{key} or otherwise stopped; empty where the notebook was not handed in, or could not be '
        "graded.</p>",
        f"{fold}<summary>{_count(len(rows), 'student')}</summary>{table(head, rows, 'grid small')}</details>",
    ]


def _sign(result: ExerciseResult) -> str:
    sign, kind = SIGNS.get(result.state, SIGNS["not attempted"] if result.state == "not checked" else STOPPED)
    label = f"{result.state}, {number(result.earned)} of {number(result.possible)}"
    return f'<span class="{kind}" title="{safe(label)}" role="img" aria-label="{safe(label)}">{sign}</span>'


def _people(students: Sequence[str], links: Mapping[str, str], between: str = ", ") -> str:
    listed = between.join(links.get(student, person(student)) for student in students)
    if len(students) <= 8:
        return f'<span class="small">{listed}</span>'
    return f'<details class="small"><summary>{_count(len(students), "student")}</summary>{listed}</details>'


def _count(amount: int, unit: str) -> str:
    return f"{amount} {unit}{'' if amount == 1 else 's'}"


def chart(words: str, draw: Callable[["Axes"], None], height: float) -> str:
    """A picture that holds its own data, drawn for light and for dark pages; `words` say what it shows.

    Args:
        words: For those who do not see it.
        draw: Draws with seaborn on the axes that it is given.
        height: In inches; it is 9 wide.
    """
    _leave_home_alone()
    import matplotlib
    import seaborn

    from transformer_lab.plots import new_picture

    data = {}
    for theme, (ink, lines) in THEMES.items():
        style = {"text.color": ink, "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink}
        style |= {"axes.edgecolor": lines, "grid.color": lines, "legend.frameon": False, "axes.facecolor": "none"}
        style |= {"svg.hashsalt": "transformer-lab", "font.family": "DejaVu Sans", "font.size": 10}
        with matplotlib.rc_context({**seaborn.axes_style("whitegrid"), **style}):
            figure = new_picture(words, 9, height)
            axes = figure.subplots()
            draw(axes)
            seaborn.despine(ax=axes, left=True, bottom=True)
            axes.grid(visible=False, axis="y" if axes.get_ylabel() == "" else "x")
            image = io.BytesIO()
            figure.savefig(image, format="svg", transparent=True, metadata={"Date": None})
        data[theme] = f"data:image/svg+xml;base64,{base64.b64encode(image.getvalue()).decode('ascii')}"
    dark = f'<source media="(prefers-color-scheme: dark)" srcset="{data["dark"]}">'
    return f'<figure><picture>{dark}<img alt="{safe(words)}" width="864" src="{data["light"]}"></picture></figure>'


def _leave_home_alone() -> None:
    """Where matplotlib has not been used yet, it would leave a list of fonts in HOME: grading changes nothing there."""
    if "matplotlib" in sys.modules or "MPLCONFIGDIR" in os.environ:
        return
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "matplotlib"), Path.home() / ".matplotlib"
    if not any(list(cache.glob("fontlist-*.json")) for cache in caches):
        folder = ExitStack()
        atexit.register(folder.close)
        os.environ["MPLCONFIGDIR"] = str(folder.enter_context(temporary_folder()))
