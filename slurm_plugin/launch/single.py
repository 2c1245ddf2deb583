"""One node, and the command as it is."""

from slurm_plugin.launch.mode import Launch, Mode, Shape, once


class Single(Mode):
    """Mode `single`."""

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Return the command, in its container where it has one."""
        return Launch(once(shape, words), "The command is left as it is: started once, on the one node.")
