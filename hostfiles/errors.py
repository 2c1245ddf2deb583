"""The one error of this package."""


class HostfileError(ValueError):
    """A node list, a count or an allocation that no correct hostfile can be made of."""
