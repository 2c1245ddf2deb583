"""Mirrors slurm_plugin/spec/problems.py: one job on nodes of several kinds, and keys that are refused with it."""

from slurm_plugin.errors import UsageError
from slurm_plugin.launch import Group
from slurm_plugin.spec import Spec, load
from slurm_plugin.spec.problems import MOST_GROUPS
from slurm_plugin.submit.render import Site, lines
from tests.refusals import refusal_of

TWO = """
groups:
- {nodes: 1, partition: cpu, cpus: 32}
- {nodes: 4, accelerators: {gpu: 8, type: a100}, exclude: "n1,n2"}
"""
HOME = Site("/home/ada", "/opt/slurm-plugin")


def spec(text: str = TWO, mode: str = "pytorch") -> Spec:
    """Return a spec with these lines."""
    return load(f"name: a\nmode: {mode}\ncommand: ./a.out\n{text}".encode(), "a.yaml")


def refusal(text: str, mode: str = "pytorch") -> str:
    """Return the lines between the first and the last of the message."""
    return "\n".join(line.strip() for line in refusal_of(UsageError, spec, text, mode).splitlines()[1:-1])


def test_a_group_is_the_job_with_keys_of_its_own() -> None:
    """Other keys are the job's. A job without groups is its own only component."""
    first, second = spec(f"account: bio\npartition: gpu\n{TWO}").components
    assert (first.nodes, first.partition, first.cpus, first.slots, first.account) == (1, ("cpu",), 32, 1, "bio")
    assert (second.nodes, second.partition, second.cpus, second.slots) == (4, ("gpu",), None, 8)
    plain = spec("nodes: 2")
    assert plain.components == (plain,)


def test_the_size_of_the_program() -> None:
    """The sum of the nodes, and the slots and CPUs of each group. Rank 0 is in the first group."""
    shape = spec().shape
    assert (shape.nodes, shape.slots, shape.shown_slots) == (5, 1, "1,8")
    assert shape.groups == (Group(1, 1, 32), Group(4, 8))
    assert spec("nodes: 2").shape.groups == ()


def test_each_group_is_asked_for_whole() -> None:
    """sbatch copies some options to later groups, so each group has all of them. Every line has its key."""
    found = [(".".join(line.key), line.text) for line in lines(spec(), HOME) if line.text.startswith("#SBATCH")]
    between = found.index(("groups.1", "#SBATCH hetjob"))
    first, second = found[:between], found[between + 1 :]
    jobs = {"name", "workdir", "output", "open_mode", "retries"}
    assert {key for key, _ in first} == {
        *jobs,
        "accelerators",
        *(f"groups.0.{key}" for key in ("nodes", "cpus", "partition")),
    }
    assert {key for key, _ in second} == {*jobs, *(f"groups.1.{key}" for key in ("nodes", "accelerators", "exclude"))}
    for key in jobs:
        assert [each for each in first if each[0] == key] == [each for each in second if each[0] == key]
    assert ("groups.1.exclude", "#SBATCH --exclude=n1,n2") in second


REFUSED = {
    "groups: []": "groups: found 0 of them; accepted: a list of 2 to",
    "groups:\n- {nodes: 1}": "groups: found 1 of them",
    f"groups: [{', '.join(['{}'] * (MOST_GROUPS + 1))}]": f"groups: found {MOST_GROUPS + 1} of them",
    f"nodes: 4{TWO}": "nodes: found it beside `groups`, each of which has its own",
    f"min_nodes: 1{TWO}": "min_nodes: found it with `groups`; give each group",
    f"retries: 3{TWO}": "retries: found it with `groups`: restarts of such a job are not supported",
    f"metadata: {{annotations: {{fault-tolerance/job-retry-num: 3}}}}{TWO}": "retries: found it with `groups`",
    f"array: 0-3{TWO}": "array: found it with `groups`, and Slurm has no arrays",
    f"prechecks: [fabric]{TWO}": "prechecks: found it with `groups`",
    f"any_of: [{{time: 1h}}, {{time: 2h}}]{TWO}": "any_of: found it with `groups`",
    f"sbatch: {{distribution: cyclic}}{TWO}": "sbatch.distribution: found it with `groups`",
    "groups:\n- {account: bio}\n- {}": "groups.0.account: found it in the first group and not in all",
    "groups:\n- {memory: 1G}\n- {}": "groups.0.memory: found it in the first group and not in all",
    "groups:\n- {}\n- {nodes: 4-8}": "groups.1.nodes: found '4-8'; accepted: a whole number from 1",
    "groups:\n- {}\n- {time: 1h}": "groups.1.time: unknown key; accepted: nodes, accelerators, cpus",
    "groups:\n- {}\n- {nodelist: 'n[1'}": "groups.1.nodelist: found",
    "groups:\n- {}\n- {accelerators: {gpu: 1, npu: 1}}": "groups.1.accelerators: found gpu and npu",
}


def test_what_is_refused() -> None:
    """With its place, and what to do."""
    for text, wanted in REFUSED.items():
        assert wanted in refusal(text), text


def test_what_sbatch_hands_on_is_said_again() -> None:
    """The job's own keys, and a key of a later group alone, are accepted."""
    for text in ["account: bio\ngroups:\n- {account: chem}\n- {}", "groups:\n- {}\n- {qos: low}"]:
        assert len(spec(text).components) == 2, text


def test_modes_that_reach_the_first_group_alone() -> None:
    """Their launcher starts its daemons by its own srun, or was never tested."""
    for mode in ["single", "openmpi", "mpich", "intelmpi", "horovod", "ascend"]:
        assert f"groups: found it in mode {mode}; modes that reach all groups: pytorch" in refusal(TWO, mode), mode


def test_a_cluster_of_tensorflow_is_counted_over_all_groups() -> None:
    """One worker must be left."""
    members = "tensorflow: {ps: 4, chief: yes}"
    assert "found 5 servers, chief and evaluator in 5 task(s)" in refusal(f"{members}{TWO}", "tensorflow")
    assert spec(f"launch: task\n{members}{TWO}", "tensorflow").shape.groups
