"""Mirrors slurm_plugin/spec/__init__.py with documents.py: what is read, and messages about the rest."""

import json
import re
from pathlib import Path

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import Accelerators, Spec, load
from tests.refusals import refusal_of
from tests.unit.spec.small import SMALL, problems, refusal


def test_jsons_words_for_yes_and_no() -> None:
    """JSON's `true` and `false` are accepted by every key that takes yes and no."""
    keys = {"unconditional": True, "infiniband": False, "hooks": {"found": False}, "exclusive": True}
    fields: dict[str, object] = {"name": "a", "mode": "pytorch", "command": "x", "retries": 1}
    spec = load(json.dumps({**fields, **keys}).encode(), "job.json")
    assert (spec.unconditional, spec.infiniband, spec.hooks.found, spec.exclusive) == ("yes", "no", "no", "yes")
    fields["metadata"] = {"annotations": {"fault-tolerance/job-unconditional-retry": True}}
    assert load(json.dumps(fields).encode(), "job.json").unconditionally


def test_a_whole_spec_is_read() -> None:
    """Every key of docs/reference/spec.md, with its type."""
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
    """The others have defaults: one node, one slot, no restart, no requested checks."""
    spec = load(SMALL.encode(), "job.yaml")
    assert (spec.nodes, spec.slots, spec.retries, spec.infiniband, spec.output) == (1, 1, 0, "auto", "%x-%j.out")


TWO = "accelerators: {gpu: 2}"
LOGS = {
    f"mode: pytorch\n{TWO}\ncommand: python a.py": "",
    f"mode: pytorch\n{TWO}\nlaunch: task\ncommand: ./a.out": "",
    "mode: pytorch\ncommand: torchrun a.py": "",
    f"mode: pytorch\n{TWO}\ncommand: torchrun a.py": "rank",
    f"mode: pytorch\n{TWO}\ncommand: srun a.py": "node",
    "mode: ascend\naccelerators: {npu: 4}\ncommand: python a.py": "",
    f"mode: openmpi\n{TWO}\ncommand: ./a.out": "",
    f"mode: openmpi\n{TWO}\ncommand: mpirun ./a.out": "node",
    f"mode: mpich\n{TWO}\ncommand: ./a.out": "",
    f"mode: intelmpi\n{TWO}\nlaunch: task\ncommand: ./a.out": "",
    f"mode: horovod\n{TWO}\ncommand: python a.py": "",
    f"mode: horovod\n{TWO}\ncommand: horovodrun python a.py": "node",
    f"mode: deepspeed\n{TWO}\ncommand: python -m a": "",
    f"mode: deepspeed\n{TWO}\ncommand: deepspeed a.py": "rank",
    f"mode: tensorflow\n{TWO}\ncommand: python a.py": "",
    "mode: single\ncommand: ./a.out": "",
    "mode: script\ncommand: ./a.out": "both",
}


def test_log_files_where_the_mode_starts_the_processes() -> None:
    """A command that starts them itself is refused what cannot be known of it, with what to do instead."""
    for text, refused in LOGS.items():
        for per in ("node", "rank", "both"):
            whole = f"name: a\n{text}\nlogs: {{per: {per}}}\n"
            if refused in ("both", "node") or (refused and per != "node"):
                said = refusal(whole)
                assert "logs.per: found" in said, text
                assert ("write the program alone" in said) == ("script" not in text), said
            else:
                assert load(whole.encode(), "job.yaml").logs_per == per, text


def test_ascend_has_log_files_by_default() -> None:
    """Of both kinds, as on other platforms with these cards; other modes have the job's log alone."""
    of_ascend = "name: a\nmode: ascend\ncommand: python a.py\n"
    found = {
        of_ascend: "both",
        f"{of_ascend}logs: {{label: yes}}\n": "both",
        f"{of_ascend}logs: {{per: job}}\n": "job",
        of_ascend.replace("ascend", "pytorch"): "job",
    }
    assert {text: load(text.encode(), "job.yaml").logs_per for text in found} == found
    assert load(of_ascend.replace("ascend", "pytorch").encode(), "job.yaml").shape.logs is None


def test_data_has_the_name_that_it_is_given() -> None:
    """Else the last part of its path."""
    spec = load(f"{SMALL}stage_in:\n- {{from: /d/imagenet/}}\n- {{from: v 2, to: v2}}\n".encode(), "job.yaml")
    assert [(each.source, each.name) for each in spec.stage_in] == [("/d/imagenet/", "imagenet"), ("v 2", "v2")]


def test_one_file_with_variables_or_a_list() -> None:
    """A comma is part of a name."""
    assert load(f"{SMALL}env_file: a,b.env\n".encode(), "job.yaml").env_file == ("a,b.env",)
    assert load(f"{SMALL}env_file: [a.env, /b.env]\n".encode(), "job.yaml").env_file == ("a.env", "/b.env")


def test_json_is_read_as_well() -> None:
    """A JSON object is YAML; numbers may be quoted or not."""
    spec = load(b'{"name": "a", "mode": "openmpi", "command": "x", "nodes": "2", "retries": 1}', "job.json")
    assert (spec.nodes, spec.retries) == (2, 1)


def test_the_retry_annotation_is_accepted_as_it_is() -> None:
    """The annotation of another system sets `retries`."""
    for value in ["3", '"3"']:
        text = f'{SMALL}metadata:\n  annotations:\n    "fault-tolerance/job-retry-num": {value}\n'
        assert load(text.encode(), "job.yaml").retries == 3, value


def test_the_annotation_and_the_key_may_only_agree() -> None:
    """Equal values are accepted. Different values are an error, even with an explicit 0."""
    annotation = "metadata: {annotations: {fault-tolerance/job-retry-num: 3}}\n"
    assert load(f"{SMALL}retries: 3\n{annotation}".encode(), "job.yaml").retries == 3
    assert problems(f"retries: 0\n{annotation}") == [
        "line 5: metadata.annotations.fault-tolerance/job-retry-num: found 3, and `retries: 0`; keep one of the two"
    ]


def test_the_unconditional_annotation_is_the_key() -> None:
    """`true` is `unconditional: yes`, and needs restarts. `false` requests nothing. It must agree with the key."""
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
    """Spares and `hang_timeout` need restarts."""
    wanted = "found it without restarts; give `retries: 1` or more, or leave it out"
    for number, key in enumerate(("unconditional: yes", "spares: 1", "hang_timeout: 5m")):
        assert problems(key) == [f"line 4: {key.partition(':')[0]}: {wanted}"], number
    assert load(f"{SMALL}grace: 60s\n".encode(), "job.yaml").grace == "60s"  # a checkpoint before the time limit


def test_a_job_without_a_time_limit() -> None:
    """It gets no signal before its end: with `grace` it is refused."""
    for word in ("UNLIMITED", "infinite"):
        assert load(f"{SMALL}time: {word}\n".encode(), "job.yaml").time == word
        assert problems(f"time: {word}\ngrace: 60s") == [
            f"line 5: grace: found it with `time: {word}`; its signal comes before the time limit: leave one of the two"
            " out"
        ]


def test_how_few_nodes_a_program_can_do_with() -> None:
    """At most all of them. The job outlives a lost node only with a restart and enough nodes left."""
    elastic = SMALL.replace("single", "pytorch") + "nodes: 4\n"
    assert problems("min_nodes: 2\n") == ["line 4: min_nodes: found 2; accepted: 1 to 1, the `nodes` of this job"]
    assert not load(elastic.encode(), "job.yaml").outlives_nodes
    assert not load(f"{elastic}min_nodes: 2\n".encode(), "job.yaml").outlives_nodes
    assert load(f"{elastic}min_nodes: 2\nretries: 1\n".encode(), "job.yaml").outlives_nodes
    assert load(f"{elastic}spares: 1\nretries: 1\n".encode(), "job.yaml").outlives_nodes


def test_what_a_job_needs_to_grow() -> None:
    """A range of nodes, checkpoints, time to save and restarts."""
    text = "found it without `nodes: 4-8`, `checkpoint: DIRECTORY`, `grace: TIME`, `retries: 1`"
    assert problems("grow: 10m") == [f"line 4: grow: {text}; give it also, or leave `grow` out"]
    able = "nodes: 2-4\ncheckpoint: ck\ngrace: 1m\nretries: 1\n"
    spec = load((SMALL.replace("single", "pytorch") + able + "grow: 10m\n").encode(), "job.yaml")
    assert (spec.grow, spec.least) == ("10m", 2)
    assert any(each.startswith("line 4: grow: found 'soon'") for each in problems("grow: soon"))


def test_the_guide_names_every_key() -> None:
    """docs/reference/spec.md has one row for each key, and no other."""
    guide = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "spec.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+)` \| .* \| .* \|$", guide, re.MULTILINE)
    assert sorted(rows) == sorted(Spec.__struct_fields__)


def test_a_script_is_bashs_to_read() -> None:
    """`cmd || sleep 5h` and `export ...; python` are passed to bash unchanged."""
    text = "export A=1; python x.py || sleep 5h\n# and more\n"
    spec = load(f"name: a\nmode: script\ncommand: |\n  {text.replace(chr(10), chr(10) + '  ')}".encode(), "job.yaml")
    assert spec.words == ("bash", "-c", text)


def test_a_job_as_another_system_writes_it() -> None:
    """With `kind` and the name in `metadata`, beside the annotations. Two different names are a problem."""
    metadata = {"name": "resnet", "annotations": {"fault-tolerance/job-retry-num": "3"}}
    fields: dict[str, object] = {"kind": "job", "metadata": metadata, "mode": "single", "command": "python x.py"}
    spec = load(json.dumps(fields).encode(), "job.json")
    assert (spec.name, spec.retries) == ("resnet", 3)
    assert load(json.dumps({**fields, "name": "resnet"}).encode(), "job.json").name == "resnet"
    refused = refusal_of(UsageError, load, json.dumps({**fields, "name": "b"}).encode(), "job.json")
    assert "metadata.name: found 'resnet', and `name: b`; keep one of the two" in refused
    refused = refusal_of(UsageError, load, json.dumps({**fields, "kind": "pytorch"}).encode(), "job.json")
    assert "kind: unknown key; here it is mode" in refused
