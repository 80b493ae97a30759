"""The error raised for input that the user can correct."""


class InputError(ValueError):
    """Invalid input from the user. The message is one line that says what was given and what to do.

    The command line prints the message without a traceback and exits with status 1. In a notebook, it is an ordinary
    exception.

    Args:
        message: The one-line message.
        parameter: The name of the parameter at fault, if any, unless the message already has it in backticks. The
            command line adds the option that sets it.
    """

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter
