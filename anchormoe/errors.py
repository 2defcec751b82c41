"""The one exception that means "the user can fix this": the CLI prints it on one line and exits with code 2."""


class UserError(Exception):
    """A mistake that the user can fix: one line says what was required, what was received and what to do."""
