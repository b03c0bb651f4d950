"""The error of programs."""


class ProgramError(ValueError):
    """A model or a guide that cannot be used as it is; the message names the site and says what to do."""
