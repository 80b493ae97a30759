"""`pytest --transformer-lab-grade FILE`: grade a submission with plain pytest, in your own test runner.

pytest imports this file in every run on a machine that has the package, so it imports other modules only when they are
needed.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

RUN = "transformer-lab-run"  # the name of the plug-in that grades


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("transformer-lab", "Transformer Lab")
    group.addoption(
        "--transformer-lab-grade",
        metavar="FILE",
        help="grade this notebook: assemble it, run its cells with nbval, score its exercises",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--transformer-lab-grade")
    if file is None:
        return
    if not config.pluginmanager.hasplugin("nbval"):
        raise pytest.UsageError("--transformer-lab-grade needs the plug-in nbval, which is disabled: enable it")
    from transformer_lab.classroom.single_submission import single_submission
    from transformer_lab.errors import InputError

    stack = ExitStack()
    config.add_cleanup(stack.close)
    try:
        run, path = stack.enter_context(single_submission(file))
    except InputError as error:
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(run, RUN)
    config.args[:] = [str(path)]
    config.option.nbval_lax = True
    config.option.color = "no"


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Iterator[None]:
    run = config.pluginmanager.get_plugin(RUN)
    if run is not None:
        from transformer_lab.classroom.single_submission import summary_lines

        terminalreporter.section(run.assembled.name)
        for line in summary_lines(run):
            terminalreporter.write_line(line)
    return (yield)
