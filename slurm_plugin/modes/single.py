"""One node, and the command as it is (row C5)."""

from slurm_plugin.modes import step
from slurm_plugin.modes.base import Launch, Mode, Shape


class Single(Mode):
    """Mode `single`."""

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Nothing is put before it."""
        return Launch(step.once(shape, words), "The command is left as it is: started once, on the one node.")
