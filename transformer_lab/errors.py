"""The error raised for input that the user can correct."""


class InputError(ValueError):
    """Invalid input from the user. The message is one line that says what was given and what to do.

    The command line prints the message without a traceback and exits with status 1. In a notebook, it is an ordinary
    exception.

    Args:
        message: The one-line message.
        parameter: The name of the parameter at fault. The command line adds the parameter's option to the message.
            Leave it out if no parameter is at fault, or if the message already names it in backticks.
    """

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter
