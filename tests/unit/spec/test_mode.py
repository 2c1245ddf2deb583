"""Keys that fit the mode and the launcher of a spec, and keys that do not."""

from tests.unit.spec.small import refusal

MODE_PROBLEMS = {
    "mode: single\nnodes: 2": "nodes: found 2; mode single accepts: 1; modes with more: openmpi, mpich, intelmpi,"
    " horovod, pytorch, deepspeed, tensorflow, ascend, script",
    "mode: ascend\nlaunch: task": "launch: found 'task'; mode ascend accepts: node; modes openmpi, mpich, intelmpi,"
    " pytorch, deepspeed, tensorflow: node, task",
    "mode: tensorflow\ntensorflow: {chief: yes}": "tensorflow: found 1 chief and evaluator in 1 task(s); accepted:"
    " fewer, as one task must be a worker",
}


def test_what_does_not_go_with_the_mode() -> None:
    """Each with the values that the mode accepts."""
    for text, wanted in MODE_PROBLEMS.items():
        said = refusal(f"name: a\ncommand: x\n{text}\n")
        assert said.splitlines()[1].partition(": ")[2] == wanted, text
