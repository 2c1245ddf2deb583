"""Each mode with a container: its program is inside, and what reaches other nodes is not."""

import pytest

from slurm_plugin.container import Container
from slurm_plugin.modes import MODES, Shape

APPTAINER = Container("t.sif", "apptainer")
PYXIS = Container("x#t", "pyxis")
PREFIX = ("apptainer", "exec", "t.sif")
WORDS = ("python", "train.py")
TASK = ("openmpi", "mpich", "intelmpi", "pytorch", "deepspeed", "tensorflow")


def argv(mode: str, container: Container, launch: str = "node", words: tuple[str, ...] = WORDS) -> tuple[str, ...]:
    """The launch of a mode on two nodes of two."""
    nodes = 1 if mode in ("single", "script") else 2
    return MODES[mode].launch(words, Shape(nodes, 2, launch, container=container)).argv


@pytest.mark.parametrize(("mode", "launch"), [*((mode, "node") for mode in MODES), *((mode, "task") for mode in TASK)])
def test_apptainer_stands_between_the_launcher_and_the_program(mode: str, launch: str) -> None:
    """srun and mpirun before it, the rest behind: the same as without a container on either side."""
    nodes = 1 if mode in ("single", "script") else 2
    bare = MODES[mode].launch(WORDS, Shape(nodes, 2, launch)).argv
    found = argv(mode, APPTAINER, launch)
    at = found.index("apptainer")
    assert found[at : at + 3] == PREFIX
    assert (*found[:at], *found[at + 3 :]) == bare
    assert not {"srun", "mpirun", "mpiexec.hydra"} & {*found[at:]}
    assert at == 0 or found[0] in ("srun", "mpirun", "mpiexec.hydra")


@pytest.mark.parametrize(
    ("mode", "launch"),
    [
        *((mode, "node") for mode in ("single", "script", "pytorch", "deepspeed", "tensorflow", "ascend")),
        *((mode, "task") for mode in TASK),
    ],
)
def test_pyxis_is_on_the_step(mode: str, launch: str) -> None:
    """Whatever srun starts is inside, a single program too."""
    found = argv(mode, PYXIS, launch)
    assert found[0] == "srun"
    assert found[found.index("--export=ALL") + 1] == "--container-image=x#t"
    assert found[-1] == "train.py"


@pytest.mark.parametrize("mode", ["openmpi", "mpich", "intelmpi", "horovod"])
def test_mpirun_cannot_start_a_container_of_pyxis(mode: str) -> None:
    """It is no srun: the spec refuses it."""
    assert not PYXIS.has(argv(mode, PYXIS))
    assert APPTAINER.has(argv(mode, APPTAINER))


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("openmpi", ("mpirun", "./a.out")),
        ("pytorch", ("srun", "./a.out")),
        ("deepspeed", ("deepspeed", "--launcher", "pdsh", "train.py")),
    ],
)
@pytest.mark.parametrize("container", [APPTAINER, PYXIS], ids=lambda each: each.runtime)
def test_a_command_that_starts_its_own_is_not_inside(mode: str, words: tuple[str, ...], container: Container) -> None:
    """It stays outside, as it has to reach the other nodes: the spec refuses it."""
    assert not container.has(argv(mode, container, words=words))
