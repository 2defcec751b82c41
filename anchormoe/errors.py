"""The one exception that means "the user can fix this": the CLI prints it on one line and exits with code 2."""


class UserError(Exception):
    """Say what was required, what was received and what to do, in one line."""
