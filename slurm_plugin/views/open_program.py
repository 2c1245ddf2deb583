"""What `slurm-plugin open` prints: the ssh line for the user's own machine, and the URL. Pure."""

from typing import Any, Final, NamedTuple

from slurm_plugin.records.open_program import CODE, OpenProgram

NAMES: Final = {"jupyter": "Jupyter", "tensorboard": "TensorBoard"}
PORTS: Final = {"jupyter": 8888, "tensorboard": 6006}  # on the user's own machine
# Slurm and the login node have checked both sides already, and each run of a job has another key.
TRUST: Final = {"StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "LogLevel": "ERROR"}
VSCODE_SETTING: Final = '"remote.SSH.remoteServerListenOnSocket": true'


class Way(NamedTuple):
    """How the user's own machine gets to a worker of a job."""

    job: int
    worker: int
    node: str
    user: str
    login: str  # the machine that ssh logs in to
    command: str  # the path of slurm-plugin there

    @property
    def host(self) -> str:
        """Return the name that ssh and the user's known hosts have for the worker."""
        return f"job-{self.job}-worker-{self.worker}"

    @property
    def place(self) -> str:
        """Return the worker as text."""
        return f"{self.node} (worker-{self.worker} of job {self.job})"

    def carry(self, what: str) -> str:
        """Return the command that carries connections to the worker, from the user's own machine."""
        verb = f"{self.command} open {self.job} {what} --carry --worker=worker-{self.worker}"
        return f"ssh {self.user}@{self.login} {verb}"

    @property
    def proxy_command(self) -> str:
        """Return the ssh ProxyCommand, in which `%` begins a token of ssh."""
        return self.carry(CODE).replace("%", "%%")


def ssh_line(way: Way, found: OpenProgram, port: int, relay: str) -> str:
    """Return the command that forwards a port of the user's own machine. `relay`: the socket on the login node.

    A node without an ssh server needs the relay: a socket on the login node, which `--carry` serves.
    """
    if not found.ssh:
        to, _, rest = way.carry(found.program).removeprefix("ssh ").partition(" ")
        return f"ssh -L {port}:{relay} {to} {rest}"
    trust = " ".join(f"-o {name}={value}" for name, value in TRUST.items())
    return f'ssh -N -L {port}:{found.socket} {trust} -o "ProxyCommand={way.proxy_command}" {way.user}@{way.host}'


def url(found: OpenProgram, port: int) -> str:
    """Return the address for the browser of the user's own machine."""
    return f"http://localhost:{port}{found.address}"


def lines(way: Way, found: OpenProgram, port: int, relay: str) -> list[str]:
    """Return the text about an open program."""
    shows = ", ".join(each.partition("=")[2] for each in found.shows)
    return [
        f"{NAMES[found.program]} runs on {way.place}" + (f" and shows {shows}" if shows else ""),
        "run on your own machine:",
        f"  {ssh_line(way, found, port, relay)}",
        "and open there:",
        f"  {url(found, port)}",
        f"it ends with the job, or with: scancel {found.step}",
    ]


def form(way: Way, found: OpenProgram, port: int, relay: str) -> dict[str, Any]:
    """Return the same as an object for `--json`."""
    return {
        "v": 1,
        "job": way.job,
        "open": found.program,
        "worker": way.worker,
        "node": way.node,
        "socket": found.socket,
        "shows": [each.partition("=")[2] for each in found.shows],
        "step": found.step,
        "proxy_command": way.proxy_command if found.ssh else None,
        "ssh": ssh_line(way, found, port, relay),
        "url": url(found, port),
    }


def code_lines(way: Way) -> list[str]:
    """Return the text for an editor, or any other program that uses ssh."""
    settings = {"User": way.user, "ProxyCommand": way.proxy_command, **TRUST}
    return [
        f"ssh reaches {way.place}, in the environment of its program; put this into ~/.ssh/config on your own machine:",
        f"  Host {way.host}",
        *(f"    {name} {value}" for name, value in settings.items()),
        f"VS Code: set {VSCODE_SETTING}, then Remote-SSH: Connect to Host... {way.host}",
        f"a shell: ssh {way.host}; files: scp FILE {way.host}:",
    ]


def code_form(way: Way) -> dict[str, Any]:
    """Return the same as an object for `--json`."""
    facts = {"v": 1, "job": way.job, "open": CODE, "worker": way.worker, "node": way.node}
    return {**facts, "host": way.host, "proxy_command": way.proxy_command}
