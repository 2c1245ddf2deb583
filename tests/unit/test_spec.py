"""Mirrors slurm_plugin/spec.py with validate.py and yamltext.py: what is read, and what is said about the rest."""

import re
from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import Accelerators, Spec, load
from slurm_plugin.yamltext import MAX_BYTES

KEYS = (
    "name, extends, mode, nodes, accelerators, groups, cpus, memory, time, partition, account, qos, constraint,"
    " nodelist, exclude, reservation, licenses, exclusive, array, dependency, begin, deadline, nice, mail, sbatch,"
    " command, env, env_file, modules, stage_in, hooks, container, workdir, output, error, open_mode, logs, checkpoint,"
    " retries, queue_timeout, unconditional, spares, min_nodes, grace, hang_timeout, hold_on_failure, infiniband,"
    " launch, tensorflow, ascend, prechecks, metadata, any_of"
)
SMALL = "name: a\nmode: openmpi\ncommand: ./a.out\n"


def refusal(text: str | bytes) -> str:
    """What is said about a spec that is not accepted."""
    with pytest.raises(UsageError) as error:
        load(text if isinstance(text, bytes) else text.encode(), "job.yaml")
    return str(error.value)


def problems(text: str) -> list[str]:
    """The problems found in a small spec with `text` added to it."""
    first, *found, last = refusal(SMALL + text).splitlines()
    assert first == f"job.yaml: {len(found)} problem{'s' * (len(found) > 1)}, nothing was submitted"
    assert last == "  correct the file, then run: slurm-plugin render job.yaml"
    return [line.strip() for line in found]


def test_a_whole_spec_is_read() -> None:
    """Every key of docs/spec.md, with its type."""
    text = b"""
name: resnet50
mode: pytorch
nodes: 4
accelerators: {gpu: 8}
command: python train.py --epochs 90
env: {LR: 0.10, ON: yes, EMPTY: , DAY: 2026-01-01}
workdir: /data/run 1
time: 1:30:00
output: logs/%j.out
checkpoint: checkpoints/
retries: 3
infiniband: yes
launch: task
"""
    assert load(text, "job.yaml") == Spec(
        name="resnet50",
        mode="pytorch",
        nodes=4,
        accelerators=Accelerators(gpu=8),
        command="python train.py --epochs 90",
        env={"LR": "0.10", "ON": "yes", "EMPTY": "", "DAY": "2026-01-01"},
        workdir="/data/run 1",
        time="1:30:00",
        output="logs/%j.out",
        checkpoint="checkpoints/",
        retries=3,
        infiniband="yes",
        launch="task",
    )


def test_three_keys_are_enough() -> None:
    """The rest has defaults: one node, one slot, no restart and no checks asked for (row A8)."""
    spec = load(SMALL.encode(), "job.yaml")
    assert (spec.nodes, spec.slots, spec.retries, spec.infiniband, spec.output) == (1, 1, 0, "auto", "%x-%j.out")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mode: pytorch\naccelerators: {gpu: 4}\nlaunch: task", ""),
        ("mode: ascend\naccelerators: {npu: 4}", ""),
        ("mode: pytorch", ""),
        ("mode: pytorch\naccelerators: {gpu: 4}", "logs.per: found rank where one task a node starts 4 of them; write"),
        ("mode: script", "logs: found it where no srun of ours starts the tasks, so that nobody can part their lines"),
    ],
)
def test_a_log_for_each_rank(text: str, said: str) -> None:
    """Where each is a task of a step of ours; no mode's own launcher is asked for it."""
    whole = f"name: a\ncommand: python a.py\n{text}\nlogs: {{per: rank}}\n"
    if said:
        assert said in refusal(whole)
    else:
        assert load(whole.encode(), "job.yaml").logs.apart
    node = whole.replace("rank", "node")
    if not said.startswith("logs: "):
        assert load(node.encode(), "job.yaml").logs.per == "node"


def test_data_has_the_name_that_it_is_given() -> None:
    """Else the last part of its path."""
    spec = load(f"{SMALL}stage_in:\n- {{from: /d/imagenet/}}\n- {{from: v 2, to: v2}}\n".encode(), "job.yaml")
    assert [(each.source, each.name) for each in spec.stage_in] == [("/d/imagenet/", "imagenet"), ("v 2", "v2")]


def test_one_file_with_variables_or_a_list() -> None:
    """A comma in a name is part of it."""
    assert load(f"{SMALL}env_file: a,b.env\n".encode(), "job.yaml").env_file == ("a,b.env",)
    assert load(f"{SMALL}env_file: [a.env, /b.env]\n".encode(), "job.yaml").env_file == ("a.env", "/b.env")


def test_json_is_read_as_well() -> None:
    """A JSON object is YAML; numbers may be quoted or not."""
    spec = load(b'{"name": "a", "mode": "openmpi", "command": "x", "nodes": "2", "retries": 1}', "job.json")
    assert (spec.nodes, spec.retries) == (2, 1)


def test_all_problems_are_told_at_once() -> None:
    """Each with its line, its place, what was found, what is accepted and the nearest word; nothing is submitted."""
    text = """name: a b
mode: pytroch
nodes: 0
accelerators:
  gpus: 8
retires: 3
env: {X: [1]}
metadata: 3
"""
    assert refusal(text) == (
        "job.yaml: 8 problems, nothing was submitted\n"
        "  line 1: name: found 'a b'; accepted: a name of up to 64 letters, digits, `.`, `_` and `-`, the first a"
        " letter or digit\n"
        "  line 1: command: missing; accepted: a command that begins with an executable\n"
        "  line 2: mode: found 'pytroch'; accepted: single, openmpi, mpich, intelmpi, horovod, pytorch,"
        " deepspeed, tensorflow, ascend, script; did you mean pytorch?\n"
        "  line 3: nodes: found '0'; accepted: a whole number from 1 to 65536, or a range such as"
        " 4-8\n"
        "  line 5: accelerators.gpus: unknown key; accepted: gpu, npu, type; did you mean gpu?\n"
        f"  line 6: retires: unknown key; accepted: {KEYS}; did you mean retries?\n"
        "  line 7: env.X: found a list; accepted: a text\n"
        "  line 8: metadata: found '3'; accepted: {annotations: {fault-tolerance/job-retry-num: a whole number from 0"
        " to 128, fault-tolerance/job-unconditional-retry: true, false}}\n"
        "  correct the file, then run: slurm-plugin render job.yaml"
    )


PATH_RULE = "a path without control characters, backslashes, double quotes, `$` or a leading `~`"
ONE_PROBLEM = {
    "nodes: many": "line 4: nodes: found 'many'; accepted: a whole number from 1 to 65536, or a range such as 4-8",
    "nodes: 2.5": "line 4: nodes: found '2.5'; accepted: a whole number from 1 to 65536, or a range such as 4-8",
    "nodes:": "line 4: nodes: found nothing; accepted: a whole number from 1 to 65536, or a range such as 4-8",
    "accelerators: {gpu: -1}": "line 4: accelerators.gpu: found '-1'; accepted: a whole number from 0 to 1024",
    "accelerators: 4": "line 4: accelerators: found '4'; accepted: {gpu: a whole number from 0 to 1024, npu: a whole"
    " number from 0 to 1024, type: a name of letters, digits and `_.+@:-`}",
    "retries: 129": "line 4: retries: found '129'; accepted: a whole number from 0 to 128",
    "queue_timeout: soon": "line 4: queue_timeout: found 'soon'; accepted: 0 or never for no end; up to 999999s: 90s,"
    " 30m, 4h, 2d, or Slurm's MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS",
    "infiniband: true": "line 4: infiniband: found 'true'; accepted: auto, yes, no",
    "infiniband: Yes": "line 4: infiniband: found 'Yes'; accepted: auto, yes, no; did you mean yes?",
    "hold_on_failure: 0": "line 4: hold_on_failure: found '0'; accepted: more than 0 (Slurm reads 0 as no limit): 90s,"
    " 30m, 4h, 2d, or Slurm's MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS",
    "hold_on_failure: yes": "line 4: hold_on_failure: found 'yes'; accepted: 90s, 30m, 4h, 2d, or Slurm's MINUTES,"
    " MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS",
    "time: 4 hours": "line 4: time: found '4 hours'; accepted: 90s, 30m, 4h, 2d, or Slurm's MINUTES, MM:SS, HH:MM:SS,"
    " D-HH, D-HH:MM, D-HH:MM:SS",
    "launch: rank": "line 4: launch: found 'rank'; accepted: node, task",
    "tensorflow: {ps: 1}": "line 4: tensorflow: found it in mode openmpi; only mode tensorflow accepts it",
    "ascend: {table: no}": "line 4: ascend: found it in mode openmpi; only mode ascend accepts it",
    "accelerators: {gpu: 1, npu: 1}": "line 4: accelerators: found gpu and npu; accepted: one kind, as each has its"
    " slots",
    "prechecks: [gpu]": "line 4: prechecks: found a list; accepted: a list of texts, such as [one, two]",
    'output: "a\\n#SBATCH --uid=0"': f"line 4: output: found 'a\\n#SBATCH --uid=0'; accepted: {PATH_RULE}",
    'output: "a\\\\b"': f"line 4: output: found 'a\\\\b'; accepted: {PATH_RULE}",
    "checkpoint: $HOME/x": f"line 4: checkpoint: found '$HOME/x'; accepted: {PATH_RULE}",
    "workdir: ~/x": "line 4: workdir: found '~/x'; accepted: a path without control characters, backslashes, double"
    " quotes, `$`, `%` or a leading `~`",
    "env: {A-B: 1}": "line 4: env.A-B: accepted names: letters, digits and `_`, the first not a digit",
    "env: {SLURM_PLUGIN_LAUNCH: 1}": "line 4: env.SLURM_PLUGIN_LAUNCH: SLURM_ names are Slurm's and ours; choose"
    " another name",
    "env: {UID: 0}": "line 4: env.UID: bash does not let a script set it; choose another name",
    'env: {A: "\\0"}': "line 4: env.A: the value has a NUL, or what is no UTF-8, in it; accepted: text",
    "env: [A=1]": "line 4: env: found a list; accepted: a mapping of `NAME: value` lines",
    '"\\e[2J\\ud800": 1': f"line 4: ?[2J?: unknown key; accepted: {KEYS}",
    "modules: [gcc, -f]": "line 4: modules: found a list; accepted: names such as `gcc/12.2.0`, or a list of them",
    "env_file: [a, $HOME/x]": f"line 4: env_file: found a list; accepted: {PATH_RULE}, or a list",
    "stage_in: [{from: /a/b c}]": "line 4: stage_in.0: found '/a/b c', whose last part is no name for it;"
    " give `to: NAME` beside it",
    "stage_in: [{from: /a/x}, {from: /b/x}]": "line 4: stage_in.1: found the name 'x' twice; give `to: NAME` beside it",
    "stage_in: /a": f"line 4: stage_in: found '/a'; accepted: a list of {{from: {PATH_RULE}, to: a name of up to 64"
    " letters, digits, `.`, `_` and `-`, the first a letter or digit}",
    "stage_in: [{to: x}]": f"line 4: stage_in.0.from: missing; accepted: {PATH_RULE}",
    "hooks: {before: [a.sh, b]}": "line 4: hooks.before: found 'b'; accepted: a .sh, which bash runs, or a .py",
    "hooks: {found: maybe}": "line 4: hooks.found: found 'maybe'; accepted: yes, no",
    "open_mode: truncate\nretries: 1": "line 4: open_mode: found truncate with restarts, each of which would lose the"
    " log before it; accepted: append",
    "error: a.err\narray: 0-3": "line 4: error: found 'a.err' for an array; accepted: a name with %a or %j in it, as"
    " each task has a log of its own",
    "logs: {per: rank}": "line 4: logs: found it where no srun of ours starts the tasks, so that nobody can part their"
    " lines; write `launch: task`, or leave it out",
    "logs: {per: task}": "line 4: logs.per: found 'task'; accepted: job, node, rank",
    "<<: {a: b}": f"line 4: <<: unknown key; accepted: {KEYS}",
}


@pytest.mark.parametrize("text", ONE_PROBLEM)
def test_a_wrong_value_is_named_with_what_is_accepted(text: str) -> None:
    """Types, ranges, words, and everything that could not stand in an #SBATCH line."""
    assert problems(text) == [ONE_PROBLEM[text]]


def test_a_command_that_a_shell_would_have_to_run_is_refused() -> None:
    """Row C6, with the hint of the row."""
    assert "line 3: command: found && in it: no shell runs this command; quote it for itself, or let bash run it: " in (
        refusal("name: a\nmode: openmpi\ncommand: a && b\n")
    )


@pytest.mark.parametrize("value", ["3", '"3"'])
def test_the_retry_annotation_is_accepted_as_it_is(value: str) -> None:
    """Row A11: the annotation of another system is `retries`."""
    text = f'{SMALL}metadata:\n  annotations:\n    "fault-tolerance/job-retry-num": {value}\n'
    assert load(text.encode(), "job.yaml").retries == 3


def test_the_annotation_and_the_key_may_only_agree() -> None:
    """Both given and alike is fine; unlike is an error, a 0 that was written included."""
    annotation = "metadata: {annotations: {fault-tolerance/job-retry-num: 3}}\n"
    assert load(f"{SMALL}retries: 3\n{annotation}".encode(), "job.yaml").retries == 3
    assert problems(f"retries: 0\n{annotation}") == [
        "line 5: metadata.annotations.fault-tolerance/job-retry-num: found 3, and `retries: 0`; keep one of the two"
    ]


def test_the_unconditional_annotation_is_the_key() -> None:
    """Row A11: `true` is `unconditional: yes`, and needs restarts; `false` asks for nothing; both may only agree."""
    annotation = "metadata: {annotations: {fault-tolerance/job-unconditional-retry: %s}}\n"
    asks = f"retries: 2\n{annotation % 'true'}"
    assert load((SMALL + asks).encode(), "job.yaml").unconditionally
    assert load(f"{SMALL}unconditional: yes\n{asks}".encode(), "job.yaml").unconditionally
    assert not load((SMALL + annotation % '"false"').encode(), "job.yaml").unconditionally
    assert problems(f"unconditional: no\n{asks}") == [
        "line 6: metadata.annotations.fault-tolerance/job-unconditional-retry: found true, and `unconditional: no`;"
        " keep one of the two"
    ]


def test_what_needs_restarts_says_so() -> None:
    """A spare, or a watch for hangs, is nothing without a restart."""
    wanted = "found it without restarts; give `retries: 1` or more, or leave it out"
    for number, key in enumerate(("unconditional: yes", "spares: 1", "hang_timeout: 5m")):
        assert problems(key) == [f"line 4: {key.partition(':')[0]}: {wanted}"], number
    assert load(f"{SMALL}grace: 60s\n".encode(), "job.yaml").grace == "60s"  # a checkpoint before the time limit


def test_how_few_nodes_a_program_can_do_with() -> None:
    """At most all of them; the job outlives a lost node only where that leaves it enough, and it has a restart."""
    elastic = SMALL.replace("single", "pytorch") + "nodes: 4\n"
    assert problems("min_nodes: 2\n") == ["line 4: min_nodes: found 2; accepted: 1 to 1, the `nodes` of this job"]
    assert not load(elastic.encode(), "job.yaml").outlives_nodes
    assert not load(f"{elastic}min_nodes: 2\n".encode(), "job.yaml").outlives_nodes
    assert load(f"{elastic}min_nodes: 2\nretries: 1\n".encode(), "job.yaml").outlives_nodes
    assert load(f"{elastic}spares: 1\nretries: 1\n".encode(), "job.yaml").outlives_nodes


def test_the_guide_names_every_key() -> None:
    """docs/spec.md has one row a key, and no other."""
    guide = (Path(__file__).resolve().parents[2] / "docs" / "spec.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+)` \| .* \| .* \|$", guide, re.MULTILINE)
    assert sorted(rows) == sorted(Spec.__struct_fields__)


NOT_A_SPEC = {
    b"name: a\nname: b\n": "job.yaml: line 2: name: found twice, first in line 1",
    b"env:\n  A: 1\n  A: 2\n": "job.yaml: line 3: env.A: found twice, first in line 2",
    b"a: &x [1]\nb: *x\n": "job.yaml: line 2: aliases (*name) are not accepted",
    b"? [a]\n: b\n": "job.yaml: line 1: a key must be a word",
    b"name: a\n b: c\n": "job.yaml: line 2: mapping values are not allowed here",
    b'a: "\\UFFFFFFFF"\n': "job.yaml: Python int too large to convert to C int",
    b"- a\n": "job.yaml: found a list; `key: value` lines are accepted",
    b"\xff": "job.yaml: byte 0 is not UTF-8; save the file as UTF-8",
    b"[" * 100_000: "job.yaml: nested too deeply; three levels are enough",
    b"#" * (MAX_BYTES + 1): "job.yaml: more than 1048576 bytes; a file written by hand has a few hundred",
}


@pytest.mark.parametrize("data", NOT_A_SPEC, ids=lambda data: repr(data[:20]))
def test_what_is_no_spec_at_all_is_refused_in_bounded_time(data: bytes) -> None:
    """Double keys, aliases (which can be bombs), depth and size: one line that says which."""
    assert refusal(data).splitlines()[0] == NOT_A_SPEC[data]


def test_a_script_is_bashs_to_read() -> None:
    """Row C6: `cmd || sleep 5h` and `export ...; python` are taken as they are."""
    text = "export A=1; python x.py || sleep 5h\n# and more\n"
    spec = load(f"name: a\nmode: script\ncommand: |\n  {text.replace(chr(10), chr(10) + '  ')}".encode(), "job.yaml")
    assert spec.words == ("bash", "-c", text)
