"""The options of sbatch for each key, and refused values."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.spec import load, resources
from slurm_plugin.submit.render import Site, script
from tests.unit.spec.small import SMALL, unplaced

HOME = Site("/home/ada", "/bin/slurm-plugin")
SBATCH = shutil.which("sbatch")

EVERYTHING = """
nodes: 4-8
accelerators: {gpu: 8, type: a100}
cpus: 12
memory: 64GB
time: 2h
partition: [gpu, long]
account: ml@lab
qos: high
constraint: "[rack1|rack2]&ib"
nodelist: n[1-2]
exclude: [n7, "n[9-10]"]
reservation: maint_1
licenses: "matlab:2,fluent@host:1"
exclusive: user
array: 0-31:2,40%4
dependency: ["afterok:17:18", singleton]
begin: 2030-01-20T12:34:00
deadline: 2031-01-01
nice: -5
mail: {user: ada@example.org, type: [end, FAIL]}
sbatch: {switches: "1@10:00", contiguous: yes, comment: for the paper, gres: "nvme:1"}
"""
DIRECTIVES = """\
#SBATCH --job-name=a
#SBATCH --nodes=4-8
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:a100:8,nvme:1
#SBATCH --cpus-per-task=12
#SBATCH --mem=64G
#SBATCH --partition=gpu,long
#SBATCH --account=ml@lab
#SBATCH --qos=high
#SBATCH --constraint="[rack1|rack2]&ib"
#SBATCH --nodelist="n[1-2]"
#SBATCH --exclude="n7,n[9-10]"
#SBATCH --reservation=maint_1
#SBATCH --licenses=matlab:2,fluent@host:1
#SBATCH --exclusive=user
#SBATCH --array=0-31:2,40%4
#SBATCH --dependency=afterok:17:18,singleton
#SBATCH --begin=2030-01-20T12:34:00
#SBATCH --deadline=2031-01-01
#SBATCH --nice=-5
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=ada@example.org
#SBATCH --switches=1@10:00
#SBATCH --contiguous
#SBATCH --time=02:00:00
#SBATCH --chdir=/home/ada
#SBATCH --output=%x-%A_%a.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="for the paper [sp1;retries=0;ib=auto]"
"""


def rendered(text: str) -> str:
    """Return the script of a small spec with more keys."""
    return script(load(f"{SMALL}{text}".encode(), "job.yaml"), HOME)


def test_every_key_has_its_directive() -> None:
    """All of them, one line each, in a fixed order."""
    lines = rendered(EVERYTHING).splitlines(keepends=True)
    assert "".join(line for line in lines if line.startswith("#SBATCH")) == DIRECTIVES


@pytest.mark.skipif(SBATCH is None, reason="no sbatch on this machine")
def test_sbatch_reads_every_key_as_it_was_meant(tmp_path: Path) -> None:
    """With the real parser of #SBATCH lines, which shows all but the deadline."""
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nMessageTimeout=2\nAuthType=auth/munge\n"
        "NodeName=n1\nPartitionName=p Nodes=ALL Default=YES\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    environ |= {"SLURM_CONF": str(tmp_path / "slurm.conf"), "LC_ALL": "C"}
    argv = [str(SBATCH), "--verbose"]
    text = rendered(EVERYTHING)
    done = subprocess.run(argv, input=text, env=environ, capture_output=True, text=True, check=False)
    lines = (line.removeprefix("sbatch: ").partition(" : ") for line in done.stderr.splitlines() if " : " in line)
    found = {name.strip(): value for name, _, value in lines}
    assert (
        found.items()
        >= {
            "account": "ml@lab",
            "array": "0-31:2,40%4",
            "begin": "2030-01-20T12:34:00",
            "comment": "for the paper [sp1;retries=0;ib=auto]",
            "constraint": "[rack1|rack2]&ib",
            "contiguous": "set",
            "cpus-per-task": "12",
            "dependency": "afterok:17:18,singleton",
            "exclude": "n7,n[9-10]",
            "exclusive": "user",
            "gres": "gres:gpu:a100:8,gres:nvme:1",
            "licenses": "matlab:2,fluent@host:1",
            "mail-type": "END,FAIL",
            "mail-user": "ada@example.org",
            "mem": "64G",
            "nice": "-5",
            "nodelist": "n[1-2]",
            "nodes": "4-8",
            "partition": "gpu,long",
            "qos": "high",
            "reservation": "maint_1",
            "switches": "1@00:10:00",
        }.items()
    )


SIZES = {"64GB": "64G", "512MB": "512M", "64G": "64G", "64 gb": "64G", "1tb": "1T", "0": "0", "900K": "900K"}


def test_memory_is_a_size() -> None:
    """In common units and in Slurm's; 0 is all of a node's memory."""
    for text, wanted in SIZES.items():
        assert f"#SBATCH --mem={wanted}\n" in rendered(f"memory: {text}\n"), text


def test_a_text_and_a_list_are_the_same() -> None:
    """For keys with several names."""
    for key, text, listed in (
        ("partition", "a,b", "[a, b]"),
        ("exclude", '"n1,n[3-4]"', '[n1, "n[3-4]"]'),
        ("dependency", "afterok:1,singleton", "[afterok:1, singleton]"),
        ("licenses", "a:1,b", "[a:1, b]"),
    ):
        assert rendered(f"{key}: {text}\n") == rendered(f"{key}: {listed}\n"), key


def test_a_key_of_nothing_asks_for_nothing() -> None:
    """`null`, an empty list, and the words for sbatch's default give no option."""
    assert rendered("partition: null\nexclude: []\nexclusive: no\nmail: null\nnice: null\n") == rendered("")


def test_a_range_of_nodes_is_two_keys() -> None:
    """`4-8` is `nodes: 8` and `min_nodes: 4`."""
    spec = load(f"{SMALL}nodes: 4-8\n".encode(), "a")
    assert (spec.nodes, spec.min_nodes) == (8, 4)
    assert rendered("nodes: 4-8\n") == rendered("nodes: 8\nmin_nodes: 4\n")


def test_the_log_of_an_array_is_each_tasks_own() -> None:
    """By default. A name that tasks would share is refused."""
    assert load(f"{SMALL}array: 0-3\n".encode(), "a").output == "%x-%A_%a.out"
    assert load(f"{SMALL}array: 0-3\noutput: '%5j.log'\n".encode(), "a").output == "%5j.log"
    assert load(f"{SMALL}output: job.out\n".encode(), "a").output == "job.out"


def test_cpus_are_those_of_a_task_or_all_of_a_launcher() -> None:
    """srun of 24.11 and later would give a launcher the CPUs of one task. A script's steps are not changed."""
    one_each, all_of_them = "export SRUN_CPUS_PER_TASK=3\n", "unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK\n"
    node, task = rendered("cpus: 3\n"), rendered("cpus: 3\nlaunch: task\n")
    assert (one_each in node, all_of_them in node) == (False, True)
    assert (one_each in task, all_of_them in task) == (True, False)
    in_bash = script(load(b"name: a\nmode: script\ncommand: x\ncpus: 3\n", "a"), HOME)
    assert "#SBATCH --cpus-per-task=3\n" in in_bash
    assert "CPUS_PER_TASK" not in in_bash + rendered("")


MAIL_TYPES = (
    "NONE, BEGIN, END, FAIL, REQUEUE, ALL, INVALID_DEPEND, STAGE_OUT, TIME_LIMIT, TIME_LIMIT_90, TIME_LIMIT_80,"
    " TIME_LIMIT_50, ARRAY_TASKS"
)
WORD = "a name of letters, digits and `_.+@:-`"
REFUSED = {
    "nodes: 8-4": "nodes: found '8-4'; accepted: 4-8",
    "nodes: 4-8\nmin_nodes: 2": "min_nodes: found it beside `nodes: 4-8`, which sets it too; keep one of the two",
    "nodes: 0-8": "nodes: found '0-8'; accepted: a whole number from 1 to 65536, or a range such as 4-8",
    "accelerators: {type: a100}": "accelerators.type: found it without a number; give `gpu: N` or `npu: N` beside it",
    "accelerators: {gpu: 1, type: 'a b'}": f"accelerators.type: found 'a b'; accepted: {WORD}",
    "cpus: 0": "cpus: found '0'; accepted: a whole number from 1 to 65536",
    "memory: 4000": "memory: found '4000'; accepted: a size such as 64GB, 512MB or Slurm's 64G; 0: all of the node's",
    "partition: a b": f"partition: found 'a b'; accepted: {WORD}, or a list of names",
    "partition: [a, '']": f"partition: found nothing; accepted: {WORD}, or a list of names",
    "account: -x": f"account: found '-x'; accepted: {WORD}",
    "constraint: a b": "constraint: found 'a b'; accepted: features as sbatch has them, such as `a100&ib` or"
    " `[rack1|rack2]`",
    "exclude: 'n[3-1]'": "exclude: found node list 'n[3-1]', character 3: the range '3-1' runs backwards; a node"
    " list reads n[08-11],gpu1; accepted: node names such as n[1-4],n9",
    "array: all": "array: found 'all'; accepted: task numbers such as 0-31, 1,3,7 or 0-30:2; with %4 behind it at most"
    " 4 at a time",
    "array: 0-3\noutput: job.out": "output: found 'job.out' for an array; accepted: a name with %a or %j in it, as each"
    " task has a log of its own",
    "begin: '$(date)'": "begin: found '$(date)'; accepted: a time as sbatch has it, such as 16:00, now+2hours or"
    " 2030-01-20T12:34:00",
    "mail: {user: ada}": "mail.type: missing; accepted: events such as `END,FAIL`, or a list of them",
    "mail: {type: ended}": f"mail.type: found 'ended'; accepted: {MAIL_TYPES}; did you mean end?",
    "nice: low": "nice: found 'low'; accepted: a whole number from -2147483645 to 2147483645; below 0 for admins alone",
}


def test_what_is_not_accepted_is_named_with_its_key() -> None:
    """Each with the accepted values."""
    for text, wanted in REFUSED.items():
        assert unplaced(f"{SMALL}{text}\n") == [wanted], text


def test_a_mapping_that_may_be_left_out_says_which_of_its_keys_is_wrong() -> None:
    assert unplaced(f"{SMALL}mail: {{to: ada, type: END}}\n") == ["mail.to: unknown key; accepted: user, type"]


def test_megabytes() -> None:
    """As Slurm counts them."""
    for size, mb in [("64G", 65536), ("1", 1), ("1500000K", 1465), ("1.5T", 1572864), ("5M", 5)]:
        assert resources.megabytes(size) == mb, size


SERVERS = {
    "": [2, 1],  # of three nodes
    "accelerators: {gpu: 8}\ncpus: 12\nmemory: 64GB\n": [97, 1, "66560M"],
    "memory: 0\nmin_nodes: 1\n": [4, 1, "0"],
    "exclusive: yes\ncpus: 12\n": [1, 12],
    "tensorflow: {chief: yes}\ncpus: 12\n": [1, 12],
}


@pytest.mark.parametrize("keys", SERVERS)
def test_parameter_servers_ask_for_a_core_and_a_gigabyte_each(keys: str) -> None:
    """In addition to the tasks of a node: three servers on three nodes are one on each."""
    servers = "" if "tensorflow" in keys else "tensorflow: {ps: 3}\n"
    spec = load(f"name: a\nmode: tensorflow\nnodes: 3\ncommand: ./a.out\n{servers}{keys}".encode(), "a")
    found = {each.option: each.value for each in resources.options(spec)}
    values = resources.tasks(spec), found.get("cpus-per-task", 1), found.get("mem")
    assert [each for each in values if each is not None] == SERVERS[keys]
