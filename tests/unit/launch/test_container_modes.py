"""Each mode with a container: the program runs inside it, and the launcher that reaches other nodes outside."""

from slurm_plugin.launch import MODES, Shape
from slurm_plugin.launch.container import Container
from slurm_plugin.launch.log_copy import Logs

APPTAINER = Container("t.sif", "apptainer")
PYXIS = Container("x#t", "pyxis")
PREFIX = ("apptainer", "exec", "t.sif")
WORDS = ("python", "train.py")
TASK = ("openmpi", "mpich", "intelmpi", "pytorch", "deepspeed", "tensorflow")


def argv(mode: str, container: Container, launch: str = "node", words: tuple[str, ...] = WORDS) -> tuple[str, ...]:
    """Return the launch of a mode on two nodes of two slots."""
    nodes = 1 if mode in ("single", "script") else 2
    return MODES[mode].launch(words, Shape(nodes, 2, launch, container=container)).argv


def test_apptainer_stands_between_the_launcher_and_the_program() -> None:
    """srun or mpirun is before it, the program after it. Both are as without a container."""
    for mode, launch in [*((mode, "node") for mode in MODES), *((mode, "task") for mode in TASK)]:
        nodes = 1 if mode in ("single", "script") else 2
        bare = MODES[mode].launch(WORDS, Shape(nodes, 2, launch)).argv
        found = argv(mode, APPTAINER, launch)
        at = found.index("apptainer")
        assert found[at : at + 3] == PREFIX, mode
        assert (*found[:at], *found[at + 3 :]) == bare, mode
        assert not {"srun", "mpirun", "mpiexec.hydra"} & {*found[at:]}, mode
        assert at == 0 or found[0] in ("srun", "mpirun", "mpiexec.hydra"), mode


def test_log_files_with_a_container() -> None:
    """A task's files are written outside of Apptainer's, those of the ranks of another launcher where they run."""
    logs = Logs("/w/logs/j-7", "both")
    shape = Shape(2, 2, container=APPTAINER, logs=logs)
    torch = MODES["pytorch"].launch(WORDS, shape).argv
    of_task, of_rank = (at for at, word in enumerate(torch) if word == "/w/logs/j-7")
    assert of_task < torch.index("apptainer") < of_rank
    assert torch[of_rank + 1 :] == ("python", "-u", "train.py")
    for mode, launch in (("openmpi", "node"), ("tensorflow", "task"), ("single", "node")):
        found = MODES[mode].launch(WORDS, shape._replace(launch=launch)).argv
        at = found.index("/w/logs/j-7")
        assert found[at + 1 :] == (*PREFIX, *WORDS), mode
    found = MODES["single"].launch(WORDS, shape._replace(nodes=1, container=PYXIS)).argv
    assert (found[0], found[-3:]) == ("srun", ("/w/logs/j-7", *WORDS))


def test_pyxis_is_on_the_step() -> None:
    """Whatever srun starts is inside, even a single program."""
    cases = [
        *((mode, "node") for mode in ("single", "script", "pytorch", "deepspeed", "tensorflow", "ascend")),
        *((mode, "task") for mode in TASK),
    ]
    for mode, launch in cases:
        found = argv(mode, PYXIS, launch)
        assert found[0] == "srun", mode
        assert found[found.index("--export=ALL") + 1] == "--container-image=x#t", mode
        assert found[-1] == "train.py", mode


def test_mpirun_cannot_start_a_container_of_pyxis() -> None:
    """It is not srun, so the spec refuses it."""
    for mode in ["openmpi", "mpich", "intelmpi", "horovod"]:
        assert not PYXIS.has(argv(mode, PYXIS)), mode
        assert APPTAINER.has(argv(mode, APPTAINER)), mode


def test_a_command_that_starts_its_own_is_not_inside() -> None:
    """It stays outside, as it must reach the other nodes, so the spec refuses it."""
    cases = [
        ("openmpi", ("mpirun", "./a.out")),
        ("pytorch", ("srun", "./a.out")),
        ("deepspeed", ("deepspeed", "--launcher", "pdsh", "train.py")),
    ]
    for container in [APPTAINER, PYXIS]:
        for mode, words in cases:
            assert not container.has(argv(mode, container, words=words)), container
