"""Write `summary.html` for the instructor: exercise results, common mistakes, who is stuck, and what to review."""

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
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_lab.classroom.feedback import sentences
from transformer_lab.classroom.gradebook import Entry, by_student, columns, format_points, grader_failed, remarks
from transformer_lab.classroom.page_templates import render
from transformer_lab.classroom.results import ExerciseResult
from transformer_lab.classroom.roster import NO_ROSTER, Attendance
from transformer_lab.classroom.temporary_folders import temporary_folder
from transformer_lab.files import on_screen

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The colors (Okabe and Ito) also differ in lightness, and their order is the same in every bar.
OUTCOMES = {
    "all points": "#0072b2",
    "some points": "#56b4e9",
    "no points": "#e69f00",
    "not attempted": "#b8b8b8",
    "stopped": "#d55e00",
}
BAR = "#0072b2"
MOST_MISCONCEPTIONS = 12  # in the chart; the table lists all of them
THEMES = {"light": ("#1b1f24", "#d0d7de"), "dark": ("#e6e8eb", "#3a424c")}  # colors of text and of lines


def summary_page(
    entries: Sequence[Entry], names: Mapping[str, str], attendance: Attendance = NO_ROSTER, ungraded: int = 0
) -> str:
    """Return the summary page.

    Args:
        entries: The results that count.
        names: Maps students to the names of their pages in `feedback/`, without the suffix.
        attendance: The comparison with the roster.
        ungraded: How many submissions are missing because the run is not finished.
    """
    graded = [entry for entry in entries if entry.result.exercises]  # those that count toward the averages
    results = [(entry.student, result) for entry in entries for result in entry.result.exercises]
    students = {
        student: {result.exercise: result for entry in submitted for result in entry.result.exercises}
        for student, submitted in by_student(entries).items()
    }
    return render(
        "summary.html",
        version=version("transformer-lab"),
        entries=entries,
        pages=names,
        attendance=attendance,
        ungraded=ungraded,
        students=students,
        submitted=by_student(entries),
        columns=list(columns(entries)),
        outcomes=list(OUTCOMES),
        refused=len(entries) - len(graded),
        grader_failed=list(dict.fromkeys(entry.student for entry in entries if grader_failed(entry.result))),
        exercises=_exercises(graded),
        totals=_totals(graded),
        mistakes=_mistakes(results),
        stuck=_stuck(graded),
        flagged=[(student, result) for student, result in results if result.flags],
        similar=_similar(entries),
        remarked=[(entry, remarks(entry)) for entry in entries if remarks(entry)],
    )


def outcome(result: ExerciseResult) -> str:
    """Return one of `OUTCOMES`."""
    if result.state == "not attempted":
        return "not attempted"
    if result.state not in ("passed", "failed", "not checked"):
        return "stopped"
    return "all points" if result.earned >= result.possible else "some points" if result.earned > 0 else "no points"


def _exercises(graded: Sequence[Entry]) -> dict[str, Any]:
    """Return each exercise's points and outcomes, and a chart. If no file could be graded, return {}."""
    import pandas

    points = columns(graded)
    results = [
        (result.exercise, result.earned, outcome(result)) for entry in graded for result in entry.result.exercises
    ]
    table = pandas.DataFrame(results, columns=["exercise", "earned", "outcome"])
    outcomes = pandas.crosstab(table.exercise, table.outcome)
    outcomes = outcomes.reindex(index=list(points), columns=list(OUTCOMES), fill_value=0)
    means = table.groupby("exercise").earned.mean()

    def draw(axes: "Axes") -> None:
        style = {"color": OUTCOMES, "width": 0.75, "edgecolor": "none"}
        outcomes.plot.barh(stacked=True, ax=axes, xlabel="students", ylabel="", **style)
        axes.invert_yaxis()  # the first exercise at the top
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncol=5)

    rows = [
        {"name": name, "points": points[name], "mean": means[name], "outcomes": outcomes.loc[name]} for name in points
    ]
    return {"rows": rows, "picture": chart(draw, 1.1 + 0.33 * len(rows))} if rows else {}


def _totals(graded: Sequence[Entry]) -> dict[str, Any]:
    """Return overall and per-notebook statistics, and a histogram. If no file could be graded, return {}."""
    if not graded:
        return {}
    everyone = _statistics(graded)
    possible = everyone["possible"]
    by_notebook = groupby(sorted(graded, key=lambda entry: entry.notebook), key=lambda entry: entry.notebook)

    def draw(axes: "Axes") -> None:
        import seaborn

        style = {"color": BAR, "alpha": 1, "edgecolor": "none"}
        bins = min(int(possible) if possible == int(possible) else 20, 20)
        seaborn.histplot(x=everyone["points"], bins=bins, binrange=(0, possible), ax=axes, **style)
        axes.set(xlabel=f"points, of {format_points(possible)}", ylabel="students", xlim=(0, possible))

    return {
        "everyone": everyone,
        "notebooks": {name: _statistics(list(submitted)) for name, submitted in by_notebook},
        "picture": chart(draw, 2.6),
    }


def _statistics(graded: Sequence[Entry]) -> dict[str, Any]:
    """Return each student's points for these notebooks, and statistics of the points."""
    points = [sum(entry.earned for entry in submitted) for submitted in by_student(graded).values()]
    mean, median = statistics.fmean(points), statistics.median(points)
    summary = {"count": len(points), "possible": sum(columns(graded).values()), "mean": mean, "median": median}
    return {"points": points, **summary, "lowest": min(points), "highest": max(points)}


def _mistakes(results: Sequence[tuple[str, ExerciseResult]]) -> dict[str, Any]:
    """Return the known mistakes and who made them, most common first, and a chart. If there were none, return {}."""
    made: dict[tuple[str, str], list[str]] = {}
    for student, result in results:
        for slug in result.misconceptions:
            made.setdefault((result.exercise, slug), []).append(student)
    ranked = sorted(made.items(), key=lambda item: (-len(item[1]), item[0]))
    shown = [  # matplotlib reads "$" as the start of a formula
        (on_screen(f"{slug} ({exercise})").replace("$", ""), len(students))
        for (exercise, slug), students in ranked[:MOST_MISCONCEPTIONS]
    ]

    def draw(axes: "Axes") -> None:
        import seaborn

        labels, counts = zip(*shown, strict=True)
        seaborn.barplot(x=counts, y=labels, color=BAR, saturation=1, edgecolor="none", orient="h", width=0.7, ax=axes)
        axes.set(xlabel="students", ylabel="")

    rows = [
        {"exercise": exercise, "says": sentences(exercise).get(slug, slug), "students": students}
        for (exercise, slug), students in ranked
    ]
    return {"rows": rows, "shown": shown, "picture": chart(draw, 0.8 + 0.3 * len(shown))} if rows else {}


def _stuck(graded: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return who is stuck on each exercise: students are stuck on a notebook's first exercise they did not pass."""
    stuck: dict[str, list[tuple[str, str]]] = {}
    for entry in graded:
        first = next((result for result in entry.result.exercises if result.state != "passed"), None)
        if first is not None and any(result.state != "not attempted" for result in entry.result.exercises):
            stuck.setdefault(first.exercise, []).append((entry.student, first.state))
    return [
        {"name": name, "states": Counter(states).most_common(), "students": students}
        for name in columns(graded)
        if name in stuck
        for students, states in [zip(*stuck[name], strict=True)]
    ]


def _similar(entries: Sequence[Entry]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the groups of students whose answers to an exercise are nearly the same."""
    groups = {
        (result.exercise, tuple(sorted((entry.student, *entry.similar[result.exercise]))))
        for entry in entries
        for result in entry.result.exercises
        if result.exercise in entry.similar
    }
    return sorted(groups)


def chart(draw: Callable[["Axes"], None], height: float) -> dict[str, str]:
    """Return two `data:` URLs of a chart: one for the light theme and one for the dark theme. `height` is in inches."""
    _leave_home_alone()
    import matplotlib
    import seaborn
    from matplotlib.figure import Figure

    ink, lines = THEMES["light"]
    style = {"text.color": ink, "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink}
    style |= {"axes.edgecolor": lines, "grid.color": lines, "legend.frameon": False, "axes.facecolor": "none"}
    style |= {"svg.hashsalt": "transformer-lab", "font.family": "DejaVu Sans", "font.size": 10}
    with matplotlib.rc_context({**seaborn.axes_style("whitegrid"), **style}):
        figure = Figure(figsize=(9, height), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        seaborn.despine(ax=axes, left=True, bottom=True)
        counts, others = (axes.yaxis, axes.xaxis) if axes.get_ylabel() else (axes.xaxis, axes.yaxis)
        counts.get_major_locator().set_params(integer=True)
        others.grid(visible=False)
        image = io.StringIO()
        figure.savefig(image, format="svg", transparent=True, metadata={"Date": None})
    data = {}
    for theme, (theme_ink, theme_lines) in THEMES.items():
        picture = image.getvalue().replace(ink, theme_ink).replace(lines, theme_lines)
        data[theme] = f"data:image/svg+xml;base64,{base64.b64encode(picture.encode()).decode()}"
    return data


def _leave_home_alone() -> None:
    """Keep matplotlib from saving a font list in the home folder: the grader may write only to its output folder."""
    if "matplotlib" in sys.modules or "MPLCONFIGDIR" in os.environ:
        return
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "matplotlib"), Path.home() / ".matplotlib"
    if not any(list(cache.glob("fontlist-*.json")) for cache in caches):
        folder = ExitStack()
        atexit.register(folder.close)
        os.environ["MPLCONFIGDIR"] = str(folder.enter_context(temporary_folder()))
