"""A rendered site, for tests of the hooks' shell code."""

import subprocess
from pathlib import Path

from slurm_plugin.site.configuration import Prechecks, SiteConfig
from slurm_plugin.site.files import render_site
from slurm_plugin.spec.policy_language import Policy
from tests.unit.node.running import run

ASKS = "my run [sp1;retries=3]"
STARTED = 'echo "$*" >> {0}/started; '  # the first command of every fake interpreter


class Site:
    """A rendered site whose interpreter is a shell script."""

    def __init__(
        self, directory: Path, *, mandatory: bool = False, checks: tuple[str, ...] = (), maps: bool = False
    ) -> None:
        self.root, self.run, self.directory = directory / "site", directory / "run", directory
        self._python = directory / "python"
        self.interpreter("echo 3 11\n")  # `render_site` asks it for its version
        config = SiteConfig(
            python=str(self._python),
            run_directory=str(self.run),
            spool_directory=str(directory / "spool"),
            prechecks=Prechecks(mandatory=("dns",) if mandatory else ()),
            policy=Policy(checks=checks),
            gpu_job_map=("dcgm",) if maps else (),
        )
        render_site(config, self.root, root=str(self.root))
        self.interpreter("")
        (self.run / "jobs" / "7.0.0").mkdir(parents=True)

    def interpreter(self, text: str | None) -> None:
        """Make the interpreter run these sh lines; None: remove it. Forget earlier starts."""
        (self.directory / "started").unlink(missing_ok=True)
        self._python.unlink(missing_ok=True)
        if text is not None:
            self._python.write_text("#!/bin/sh\n" + STARTED.format(self.directory) + text)
            self._python.chmod(0o755)

    def hook(self, name: str, comment: str | None = ASKS, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a hook on job 7."""
        given = {"SLURM_JOB_ID": "7", **({} if comment is None else {"SLURM_JOB_COMMENT": comment}), **environ}
        return run(self.root / "hooks" / name, given, self.directory)

    @property
    def started(self) -> list[str]:
        """The arguments of each start of the interpreter."""
        file = self.directory / "started"
        return file.read_text().splitlines() if file.exists() else []
