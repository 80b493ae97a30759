"""`python -m transformer_lab.authoring build [NAME ...] [--all]`, `… check` and `… site`."""

import argparse
import sys
from pathlib import Path

from transformer_lab.authoring.notebooks import build_notebooks, outdated_notebooks
from transformer_lab.authoring.site import build_site
from transformer_lab.errors import InputError
from transformer_lab.exercises import exercises


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m transformer_lab.authoring", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build notebooks and solutions from course/, execute what has changed")
    build.add_argument("names", nargs="*", metavar="NAME", help="for example 01_attention; by default all")
    build.add_argument("--all", action="store_true", help="execute every solution, changed or not")
    commands.add_parser("check", help="fail if a built notebook does not match its text")
    commands.add_parser("site", help="build the website in build/site from the executed solutions")
    chosen = parser.parse_args(arguments)

    root = Path.cwd()
    try:
        if chosen.command == "build":
            for path in build_notebooks(root, exercises(), chosen.names, everything=chosen.all):
                print(f"wrote {path.relative_to(root)}")
            return 0
        if chosen.command == "site":
            site = build_site(root, root / "build" / "site")
            print(f"wrote {site.relative_to(root)}: open its index.html in a browser")
            return 0
        lines = outdated_notebooks(root, exercises())
    except InputError as error:
        for message in (error.__cause__, error):
            if message:
                print(message, file=sys.stderr)
        return 1
    for line in lines:
        print(f"{line}: run `make notebooks`", file=sys.stderr)
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
