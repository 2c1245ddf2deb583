"""What `slurm-plugin open` prints."""

from slurm_plugin.records.open_program import OpenProgram
from slurm_plugin.views import open_program as view
from slurm_plugin.views.open_program import Way

WAY = Way(17, 1, "n2", "alice", "login.example.org", "/opt/slurm-plugin")
JUPYTER = OpenProgram("jupyter", "n2", "/run/slurm_plugin/jobs/17.0.0/user/jupyter.sock", "/?token=0123abcd", "17.3")
BOARD = OpenProgram("tensorboard", "n2", "/run/t.sock", "/", "17.4", ("a=/w/a", "b=/w/b"), ssh=False)


def test_jupyter() -> None:
    """One ssh line with a ProxyCommand, and the URL."""
    assert view.lines(WAY, JUPYTER, 8888, "/unused") == [
        "Jupyter runs on n2 (worker-1 of job 17)",
        "run on your own machine:",
        "  ssh -N -L 8888:/run/slurm_plugin/jobs/17.0.0/user/jupyter.sock -o StrictHostKeyChecking=no -o "
        'UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o "ProxyCommand=ssh alice@login.example.org '
        '/opt/slurm-plugin open 17 code --carry --worker=worker-1" alice@job-17-worker-1',
        "and open there:",
        "  http://localhost:8888/?token=0123abcd",
        "it ends with the job, or with: scancel 17.3",
    ]


def test_a_node_without_an_ssh_server() -> None:
    """The ssh of the login node forwards to a socket there, and runs the relay."""
    assert view.lines(WAY, BOARD, 6006, "/tmp/slurm_plugin-1/17.tensorboard.sock") == [
        "TensorBoard runs on n2 (worker-1 of job 17) and shows /w/a, /w/b",
        "run on your own machine:",
        "  ssh -L 6006:/tmp/slurm_plugin-1/17.tensorboard.sock alice@login.example.org "
        "/opt/slurm-plugin open 17 tensorboard --carry --worker=worker-1",
        "and open there:",
        "  http://localhost:6006/",
        "it ends with the job, or with: scancel 17.4",
    ]
    assert view.form(WAY, BOARD, 6006, "/r") == {
        "v": 1,
        "job": 17,
        "open": "tensorboard",
        "worker": 1,
        "node": "n2",
        "socket": "/run/t.sock",
        "shows": ["/w/a", "/w/b"],
        "step": "17.4",
        "proxy_command": None,
        "ssh": "ssh -L 6006:/r alice@login.example.org /opt/slurm-plugin open 17 tensorboard --carry --worker=worker-1",
        "url": "http://localhost:6006/",
    }


def test_an_editor() -> None:
    """A block for ~/.ssh/config, in which a `%` of a path is doubled."""
    way = WAY._replace(command="/opt/50%/slurm-plugin")
    assert view.code_lines(way) == [
        "ssh reaches n2 (worker-1 of job 17), in the environment of its program; "
        "put this into ~/.ssh/config on your own machine:",
        "  Host job-17-worker-1",
        "    User alice",
        "    ProxyCommand ssh alice@login.example.org /opt/50%%/slurm-plugin open 17 code --carry --worker=worker-1",
        "    StrictHostKeyChecking no",
        "    UserKnownHostsFile /dev/null",
        "    LogLevel ERROR",
        'VS Code: set "remote.SSH.remoteServerListenOnSocket": true, '
        "then Remote-SSH: Connect to Host... job-17-worker-1",
        "a shell: ssh job-17-worker-1; files: scp FILE job-17-worker-1:",
    ]
    assert view.code_form(way)["proxy_command"].startswith("ssh alice@login.example.org /opt/50%%/")
