"""The one kind of error that the reader can mend."""


class InputError(ValueError):
    """Something the reader gave cannot be used. The message is one line: what was given, what to do.

    The command prints it without a traceback and exits with status 1; in a notebook it is an ordinary exception.
    """
