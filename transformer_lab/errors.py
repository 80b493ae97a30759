"""The error for input that the user can correct."""


class InputError(ValueError):
    """Invalid input from the user. The message is one line that says what was given and what to do.

    The command prints it without a traceback and exits with status 1; in a notebook it is an ordinary exception.

    Args:
        message: The line.
        parameter: The name of the parameter at fault, if there is one and the message doesn't have it in backticks.
            The command adds the option that sets it.
    """

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter
