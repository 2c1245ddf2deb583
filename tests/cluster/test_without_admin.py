"""A Slurm without anything of slurm_plugin, and a user who has installed its wheel in her home."""

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_plugin.sandbox import Sandbox
from tests import wheels
from tests.cluster import alone, jobs
from tests.cluster.alone import PATH, own_settings, submit
from tests.cluster.etc import Etc, hccn_files
from tests.cluster.jobs import Job, workdir
from tests.cluster.plain import start
from tests.cluster.programs import LIBUV, OTHER_ROOT
from tests.cluster.test_containers import contained

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/without-an-admin.md"
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
# Ends with 5 when the node has lost a GPU, and with 0 in a later attempt.
TRAIN = """bash -c 'echo "$(hostname): rank $RANK, attempt $SLURM_PLUGIN_ATTEMPT"
[ $SLURM_PLUGIN_ATTEMPT = 0 ] || exit 0
while [ -c /dev/fakegpu3 ]; do sleep 0.1; done; exit 5'"""
REPLACES = """function slurm_job_submit(job, partitions, uid)
  job.comment = "replaced"
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end
"""
# The examples that need only what this machine has: a smaller size, and a program that tells its rank. Then the ranks.
FEWER = {"nodes": 2, "accelerators": {"gpu": 2}, "cpus": 1, "time": "5m"}
TWO_GROUPS = [{"nodes": 1}, {"nodes": 2, "accelerators": {"gpu": 2}}]
OMPI_RANK = "bash -c 'echo told $OMPI_COMM_WORLD_RANK'"
PMI_RANK = "bash -c 'echo told $PMI_RANK'"
RANK = """import json, os
config = os.environ.get("TF_CONFIG")
os.write(1, f"told {json.loads(config)['task']['index'] if config else os.environ['RANK']}\\n".encode())
"""
EXAMPLES: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "single": ({"accelerators": None, "command": "echo told 0"}, 1),
    "script": ({**FEWER, "error": None, "command": "srun -n2 bash -c 'echo told $SLURM_PROCID'"}, 2),
    "openmpi": ({**FEWER, "sbatch": None, "command": OMPI_RANK, "env": jobs.OPEN_MPI}, 4),
    "horovod": ({**FEWER, "prechecks": None, "command": OMPI_RANK, "env": jobs.OPEN_MPI}, 4),
    "mpich": ({**FEWER, "launch": "task", "command": PMI_RANK}, 4),
    "intelmpi": ({**FEWER, "launch": "task", "command": PMI_RANK}, 4),
    "pytorch": ({**FEWER, "command": "python3 ../rank.py", "env": LIBUV}, 4),
    "resume-torch": ({**FEWER, "command": "python3 ../rank.py", "env": LIBUV}, 4),
    "deepspeed": ({**FEWER, "launch": "task", "command": "python3 ../rank.py"}, 4),
    "tensorflow": ({"nodes": 3, "tensorflow": None, "command": "python3 ../rank.py"}, 3),
    "resume": ({"command": "echo told 0"}, 1),
    "demo": ({**FEWER, "command": OMPI_RANK, "env": jobs.OPEN_MPI}, 4),
    "ascend": ({**FEWER, "command": "bash -c 'echo told $RANK_ID'"}, 4),
    "container": (
        {**FEWER, "launch": "task", "hold_on_failure": None, "command": "bash -c 'echo told $RANK; cat /etc/inside'"},
        4,
    ),
    "groups": ({"groups": TWO_GROUPS, "command": "bash -c 'echo told $RANK'"}, 5),
}


@pytest.mark.full  # 60 s
@pytest.mark.skipif(OTHER_ROOT, reason="its wheels and PyTorch are for this machine's Python")
def test_the_page(alice: Sandbox) -> None:
    """In an empty home every command of the page ends with 0, and each rank finds its place."""
    home = workdir(alice, "fresh")
    wheel = wheels.built(home)
    wheels.fetch(str(wheel), home / "wheels")  # the machines have no network
    begin = "export HOME=$HOME/fresh PIP_NO_INDEX=1 PIP_FIND_LINKS=$HOME/fresh/wheels; cd"
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        done = alice.run(["bash", "-ec", f"{begin}\n{PATH}\n{block}"], check=False)
        assert done.returncode == 0, f"{block}{done.stdout}{done.stderr}"
        alone.add_pytorch(home / "venv")
    logs = "".join(path.read_text() for path in home.glob("hello/*.out"))
    assert sorted(re.findall(r"rank (\d) of 4 on n\d", logs)) == [*"00112233"], logs
    litter = alice.run(["sh", "-c", "ls -d /tmp/slurm_plugin.*"], node="n1", check=False).stdout
    assert litter == ""


def test_no_example_is_left_out() -> None:
    """The page runs two, and test_without_admin_jobs the search."""
    of_the_page = re.findall(r"example ([\w-]+) >", PAGE.read_text(encoding="utf-8"))
    assert {*EXAMPLES, *of_the_page, "search"} == {path.stem for path in (ROOT / "examples").glob("*.yaml")}


@pytest.mark.full  # 30 s
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples(alice: Sandbox, name: str) -> None:
    """Each rank is there, once."""
    fewer, ranks = EXAMPLES[name]
    spec = yaml.safe_load((ROOT / f"examples/{name}.yaml").read_text(encoding="utf-8"))
    absent = {key: None for key in ("nodes", "accelerators") if key not in spec}
    del spec["name"]
    (alice.home("alice") / "rank.py").write_text(RANK)
    wanted = {**absent, **spec, **fewer}
    with hccn_files(alice) as write:
        for node in ("n1", "n2"):
            write(node, f"address_0=10.1.0.{node[1]}\naddress_1=10.1.1.{node[1]}\n")
        if name == "container":
            del wanted["container"]
            job = contained(alice, f"alone-{name}", by=submit, **wanted)
        else:
            job = submit(alice, f"alone-{name}", **wanted)
        assert job.end() == "COMPLETED", job.log
    assert job.log.count("in the image") == (ranks if name == "container" else 0)
    told = re.findall(r"told (\d+)", job.log)
    assert sorted(map(int, told)) == [*range(ranks)], job.log


def test_her_own_settings(alice: Sandbox) -> None:
    """A preset, a check and a directory for copies; what the cluster lacks is said before the job waits."""
    limits = dict.fromkeys(("max_locked_memory_kb", "open_files", "stack_size_kb", "max_user_processes"), 1)
    settings: Mapping[str, Any] = {
        "presets": {"tiny": {"nodes": 1, "accelerators": {"gpu": 1}}},
        "stage_in": {"directory": "/tmp"},
        "prechecks": {"mandatory": ["ulimit"], "ulimit": limits},
    }
    spec = {"nodes": None, "accelerators": None, "extends": "tiny", "stage_in": [{"from": "job.yaml"}]}
    command = "bash -c 'head -c 6 $SLURM_PLUGIN_DATA/job.yaml'"
    with own_settings(alice, **settings):
        directory = jobs.written(alice, "alone-settings", **spec, command=command, retries=1)
        said = alice.run(["sh", "-c", f"{PATH}; cd ~/{directory.name} && exec slurm-plugin submit job.yaml"])
        assert "no admin has installed slurm_plugin on this cluster" in said.stderr
        assert "retries: the job restarts itself, at most 1 times" in said.stderr
        for verb in ("render", "forecast"):
            also = alice.run(["sh", "-c", f"{PATH}; cd ~/{directory.name} && exec slurm-plugin {verb} job.yaml"]).stderr
            assert "retries: the job restarts itself, at most 1 times" in also
        job = Job(alice, int(said.stdout), directory)
        assert job.end() == "COMPLETED", job.log
        assert "stage-in: ok: job.yaml: 1 files" in job.log
        assert "ulimit: ok on" in job.log
        assert job.log.endswith("comman")
        doctor = alice.run(["sh", "-c", f"{PATH}; exec slurm-plugin doctor --json"]).stdout
    found = {each["name"]: each for each in json.loads(doctor)["findings"]}
    assert {each["verdict"] for each in found.values()} == {"ok"}
    assert found["your settings"]["message"] == "/home/alice/.config/slurm_plugin.yaml"


def test_ranks_beside_a_sites_own_task_prolog(alice: Sandbox, plain_etc: Etc) -> None:
    """Both run, and her own one. Each task has its rank, also one that starts on another node than the script."""
    plain_etc.settings(TaskProlog=plain_etc.program("own_task_prolog", "echo export SITE=yes"))
    plain_etc.reconfigure()
    own = alice.home("alice") / "own.sh"
    own.write_text("#!/bin/sh\necho export HERS=too\n")
    own.chmod(0o755)
    env = {"SLURM_TASK_PROLOG": "/home/alice/own.sh"}
    left = "${SLURM_PLUGIN_LAUNCH-}$SLURM_TASK_PROLOG"
    command = f"bash -c 'echo \"$SITE $HERS $RANK of $WORLD_SIZE on $SLURMD_NODENAME {left}\"'"
    job = submit(alice, "alone-ranks", launch="task", accelerators={"gpu": 2}, command=command, env=env)
    assert job.end() == "COMPLETED", job.log
    assert jobs.printed(job) == [
        f"yes too {rank} of 4 on n{1 + rank // 2} {env['SLURM_TASK_PROLOG']}" for rank in range(4)
    ]


def test_a_lost_gpu(alice: Sandbox) -> None:
    """The job requeues itself without the node, and runs again long before Slurm's own delay is over."""
    job = submit(alice, "alone-lost", retries=2, command=TRAIN)
    job.until(lambda: job.log.count("attempt 0") == 3, "both ranks run")
    alice.break_node("n1", "gpu-missing")
    assert job.end() == "COMPLETED", job.log
    assert [(line["restart"], line["action"]) for line in job.attempts] == [(0, "requeue"), (1, "finish")]
    assert (job.fields["ExcNodeList"], job.fields["Restarts"]) == ("n1", "1")
    assert "n1" not in job.nodes
    assert job.wait_s < jobs.OWN_WAIT_S
    assert alice.states()["n1"] == "idle"  # a user drains no node


@pytest.mark.full  # 40 s
@pytest.mark.parametrize("nodes", [1, 2])
def test_an_epilog_of_the_site(alice: Sandbox, plain_etc: Etc, nodes: int) -> None:
    """It keeps the job COMPLETING. The other node shows for how long; a job of one node has to wait for longer."""
    plain_etc.settings(Epilog=plain_etc.program("own_epilog", "sleep 1"))
    plain_etc.reconfigure()
    job = submit(alice, f"alone-epilog-{nodes}", nodes=nodes, retries=1, command=TRAIN)
    job.until(lambda: job.log.count("attempt 0") == nodes + 1, "both ranks run")
    alice.break_node("n1", "gpu-missing")
    assert job.end() == "COMPLETED", job.log
    (seconds,) = re.findall(r"the job may start again in (\d+) s", job.log)
    assert (int(seconds) == 20) if nodes == 1 else (4 <= int(seconds) <= 9)
    assert job.wait_s < jobs.OWN_WAIT_S


@pytest.mark.full  # 20 s
def test_beside_a_sites_own_job_submit(alice: Sandbox, plain_etc: Etc) -> None:
    """It replaces each job's comment, which had the request: the restarts of the spec count all the same."""
    (alice.directory / "etc/slurm/job_submit.lua").write_text(REPLACES)
    plain_etc.settings(JobSubmitPlugins="lua")
    plain_etc.restart()
    job = submit(alice, "alone-lua", retries=1, command=TRAIN)
    job.until(lambda: job.log.count("attempt 0") == 3, "both ranks run")
    assert job.fields["Comment"] == "replaced"
    alice.break_node("n1", "gpu-missing")
    assert job.end() == "COMPLETED", job.log
    assert [line["action"] for line in job.attempts] == ["requeue", "finish"]
    assert job.fields["ExcNodeList"] == "n1"


@pytest.mark.full  # 25 s
def test_no_more_restarts_than_the_spec_says(alice: Sandbox) -> None:
    """The last run may not be requeued, also not by Slurm."""
    for node in ("n1", "n2", "n3", "n4", "n5"):
        alice.break_node(node, "gpu-missing")
    job = submit(alice, "alone-budget", retries=1, command="true")
    assert job.end() == "FAILED", job.log
    assert [line["action"] for line in job.attempts] == ["requeue", "fail"]
    assert (job.fields["Restarts"], job.fields["Requeue"]) == ("1", "0")


LOST_GPU = "while [ -c /dev/fakegpu3 ]; do sleep 0.1; done; exit 5"
# Keys of a spec -> what its first attempt does. The next one ends with 0.
IN_PLACE: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "unconditional": ({"unconditional": "yes"}, "exit 3"),
    "hang": ({"hang_timeout": "10s"}, "exec sleep 600"),
    "elastic": ({"nodes": 3, "min_nodes": 2}, LOST_GPU),
    "spare": ({"spares": 1}, LOST_GPU),
}


@pytest.mark.full  # 20 s each
@pytest.mark.parametrize("name", IN_PLACE)
def test_a_restart_in_the_same_allocation(alice: Sandbox, name: str) -> None:
    """Whatever the reason: it is counted, and needs no admin."""
    keys, first = IN_PLACE[name]
    command = f"bash -c 'echo attempt $SLURM_PLUGIN_ATTEMPT; [ $SLURM_PLUGIN_ATTEMPT = 0 ] || exit 0; {first}'"
    job = submit(alice, f"alone-{name}", **{"retries": 1, "command": command, **keys})
    if first == LOST_GPU:
        job.until(lambda: job.log.count("attempt 0") == keys.get("nodes", 2) + 1, "all ranks run")
        alice.break_node("n2", "gpu-missing")
    assert job.end() == "COMPLETED", job.log
    assert [line["action"] for line in job.attempts] == ["again", "finish"]
    assert (job.fields["Restarts"], job.fields["Requeue"], "n2" in job.nodes) == ("0", "0", True)


@pytest.mark.full  # up to 80 s
def test_a_program_that_saves_before_its_time_limit(alice: Sandbox) -> None:
    """The signal reaches it, and the job requeues itself to go on from its checkpoint."""
    saves = 'trap "touch saved/1; exit 7" USR1; mkdir -p saved; while :; do sleep 0.1; done'
    command = f"bash -c '[ $SLURM_PLUGIN_ATTEMPT = 0 ] || exit 0; {saves}'"
    keys = {"nodes": 1, "mode": "single", "time": "2m", "grace": "60s", "checkpoint": "saved"}
    job = submit(alice, "alone-grace", **keys, retries=1, command=command)
    assert job.end() == "COMPLETED", job.log
    assert [(line["restart"], line["action"]) for line in job.attempts] == [(0, "requeue"), (1, "finish")]
    assert "ran into its time limit" in job.attempts[0]["cause"]
    assert job.wait_s < jobs.OWN_WAIT_S


@pytest.mark.full  # 15 s
def test_a_script_with_plugin_lines(alice: Sandbox) -> None:
    """`slurm-plugin sbatch` restarts it, in the allocation and without a node that lost a GPU."""
    directory = workdir(alice, "alone-script")
    (directory / "f.sh").write_text(
        "#!/bin/bash\n#SBATCH --nodes=2 --gres=gpu:4\n#PLUGIN retries=1\n#PLUGIN unconditional=yes\n"
        "[ $SLURM_PLUGIN_ATTEMPT = 1 ] || exit 3\n"
    )
    said = alice.run(["sh", "-c", f"{PATH}; cd ~/alone-script && exec slurm-plugin sbatch f.sh"])
    job = Job(alice, int(said.stdout.split()[-1]), directory)
    assert job.end() == "COMPLETED", said.stderr
    assert [line["action"] for line in job.attempts] == ["again", "finish"]


@pytest.mark.full  # 15 s each
@pytest.mark.skipif(OTHER_ROOT, reason="on 26.05 jobs do not see a mount that is made on a running node")
@pytest.mark.parametrize(
    ("hidden", "said"),
    [
        ("bin", "has no /home/alice/venv/bin/python"),
        ("lib", "cannot run slurm_plugin with /home/alice/venv/bin/python: No module named slurm_plugin"),
    ],
)
@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_node_without_her_environment(alice: Sandbox, node: str, hidden: str, said: str) -> None:
    """It is named with the path, and the job runs without it. The first node of a script or a spec says so itself."""
    alice.run(["mount", "-t", "tmpfs", "none", f"/home/alice/venv/{hidden}"], user="root", node=node)
    try:
        job = submit(alice, f"alone-{node}-no-{hidden}", retries=1, command="true")
        assert job.end() == ("FAILED" if node == "n1" else "COMPLETED"), job.log
        directory = workdir(alice, "alone-no-script")
        (directory / "f.sh").write_text("#!/bin/bash\n#SBATCH -o job.out -w n1\n#PLUGIN mode=script\necho ran\n")
        done = alice.run(["sh", "-c", f"{PATH}; cd ~/{directory.name} && exec slurm-plugin sbatch f.sh"])
        script = Job(alice, int(done.stdout.split()[-1]), directory)
        script.end()
    finally:
        alice.run(["umount", f"/home/alice/venv/{hidden}"], user="root", node=node)
    if node == "n1":
        cannot = "n1 cannot run /home/alice/venv/bin/slurm-plugin: is its directory shared with the nodes"
        assert (cannot in job.log, cannot in script.log, "ran" in script.log) == (True, True, False)
    else:
        assert f"n2 {said}" in job.log
        assert (job.fields["ExcNodeList"], "ran" in script.log) == ("n2", True)


@pytest.mark.full  # 60 s
@pytest.mark.parametrize(("victim", "spares"), [("n2", 1), ("n2", 0), ("n1", 0), ("n1", 1)])
def test_a_dead_node(alice: Sandbox, victim: str, spares: int) -> None:
    """With a spare the job goes on in its allocation, unless its first node died. Else it is requeued, and counted.

    It starts again within seconds: after the death of its first node, a guard of another node changes it. With a spare
    that is not possible on 22.05 without slurmdbd, which changes no job that has lost a node and goes on.
    """
    job = submit(alice, f"alone-{victim}-{spares}", retries=2, spares=spares or None, command=TRAIN)
    job.until(lambda: job.log.count("attempt 0") == 3, "both ranks run")
    alice.break_node(victim, "node-dead")
    job.until(lambda: job.state in ("PENDING", "COMPLETED"), "it is requeued, or ends on the other nodes")
    if (victim, spares) == ("n1", 1) and not OTHER_ROOT:
        start(job)
    began = time.monotonic()
    assert job.end() == "COMPLETED", job.log
    assert time.monotonic() - began < 100  # Slurm's own wait is 121 s
    assert victim not in job.nodes
    assert int(job.fields["Restarts"]) == (0 if (victim, spares) == ("n2", 1) else 1)


@pytest.mark.full  # 60 s
def test_a_dead_first_node_after_the_last_restart(alice: Sandbox) -> None:
    """The other nodes would keep the job, with nothing in it, until its time limit: it is cancelled."""
    job = submit(alice, "alone-spent", retries=1, spares=1, command=TRAIN.replace("exit 0", "exec sleep 600"))
    job.until(lambda: job.log.count("attempt 0") == 3, "both ranks run")
    alice.break_node("n2", "gpu-missing")
    job.until(lambda: job.log.count("rank 1, attempt 1") == 1, "it goes on with the spare")
    alice.break_node("n1", "node-dead")
    assert job.end() == "CANCELLED", job.log
