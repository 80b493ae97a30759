"""The error for input that the user can correct."""


class InputError(ValueError):
    """Invalid input from the user. The message is one line that says what was given and what to do.

    The command prints it without a traceback and exits with status 1; in a notebook it is an ordinary exception.
    """
