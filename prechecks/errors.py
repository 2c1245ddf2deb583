"""The one error of this package."""


class PrecheckError(ValueError):
    """A report that is not one, or a check that does not exist. Never the outcome of a check: that is a Verdict."""
