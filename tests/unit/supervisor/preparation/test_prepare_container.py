"""A launch in a container: the variables of each task, and variables that override the image's."""

from pathlib import Path

from tests.unit.supervisor import plans
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.preparing import Prepare, hooked

APPTAINER = {**plans.APPTAINER, "env": ("NCCL_DEBUG",)}
PYXIS = {**plans.PYXIS, "env": ("NCCL_DEBUG",)}
GIVEN = {"NCCL_DEBUG": "WARN", "HOME": "/h", "PATH": "/usr/bin"}


def test_apptainer_hands_on_what_task_prolog_says(place: Path, prepare: Prepare) -> None:
    """It starts behind TaskProlog; the user's `env` and `env_file` and the mode's own stand above the image's."""
    given = {**GIVEN, "OF_A_FILE": "1"}
    made = prepare(plan("python t.py", mode="pytorch", container=APPTAINER), environ=given, above=("OF_A_FILE",))
    assert (made.task_script is not None, made.tells) == (True, True)
    environ = made.environment("", launched=True)
    assert environ["SLURM_PLUGIN_LAUNCH"] == "7.0.0"
    above = {name.removeprefix("APPTAINERENV_") for name in environ if name.startswith("APPTAINERENV_")}
    assert above == {"NCCL_DEBUG", "OF_A_FILE", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "SLOTS"}
    assert all(environ[f"APPTAINERENV_{name}"] == environ[name] for name in above)
    assert not any(name.startswith("APPTAINERENV_") for name in made.environment("", launched=False))
    argv = made.launch(environ).argv
    at = argv.index("apptainer")
    assert argv[at : at + 5] == ("apptainer", "exec", f"--bind={place}", f"--pwd={place}", f"{place}/t.sif")


def test_log_files_elsewhere_are_mounted(place: Path, tmp_path: Path, prepare: Prepare) -> None:
    """Ranks of torchrun write theirs inside; below the working directory they need no mount."""
    logs = f"{tmp_path}/else/logs"
    for where, mounts in ((logs, [f"--bind={place}", f"--bind={logs}"]), (f"{place}/logs", [f"--bind={place}"])):
        given = plan("python t.py", mode="pytorch", container=APPTAINER, logs=where, logs_per="rank")
        argv = prepare(given, environ=GIVEN).launch({}).argv
        assert [word for word in argv if word.startswith("--bind=")] == mounts


def test_with_pyxis_the_words_say_it(place: Path, prepare: Prepare) -> None:
    """TaskProlog runs in the container there: it is mounted and does nothing; what it says elsewhere the words say."""
    made = prepare(plan("python t.py", mode="pytorch", container=PYXIS), environ=GIVEN)
    assert (made.task_script, made.tells, made.asks) == (None, False, False)
    environ = made.environment("", launched=True)
    assert "SLURM_PLUGIN_LAUNCH" not in environ
    assert not any(name.startswith("APPTAINERENV_") for name in environ)
    argv = made.launch(environ).argv
    assert "--container-env=NCCL_DEBUG,MASTER_ADDR,MASTER_PORT,WORLD_SIZE,SLOTS" in argv
    assert argv[argv.index("sh") + 3].startswith("printf 'export %s\\n' \"RANK=$SLURM_NODEID\"\n")


def test_hooks_run_outside(place: Path, prepare: Prepare) -> None:
    """With the node's own python3; with pyxis the first node's changes are everybody's, as no TaskProlog has each's."""
    hooked(place, set_={"FROM_A_HOOK": "1"})
    made = prepare(plan("/opt/conda/bin/python t.py", mode="pytorch", container=PYXIS), environ=GIVEN)
    step = made.hook_step(["slurm-plugin"])
    assert step[step.index("--python") + 1] == "python3"
    assert not any("container" in word for word in step)
    environ = made.environment("", launched=True)
    assert (environ["FROM_A_HOOK"], "SLURM_PLUGIN_LAUNCH" in environ) == ("1", False)
    beside = prepare(plan("python t.py", mode="pytorch", container=APPTAINER), environ=GIVEN)
    assert "FROM_A_HOOK" not in beside.environment("", launched=True)


def test_an_environment_that_the_command_names_is_the_images(place: Path, prepare: Prepare, said: list[str]) -> None:
    """The node's own of that name is not activated."""
    (place / "env" / "bin").mkdir(parents=True)
    (place / "env" / "bin" / "python").touch()
    (place / "env" / "conda-meta").mkdir()
    given = plan(f"{place}/env/bin/python t.py")
    assert "CONDA_PREFIX" in prepare(given, environ=GIVEN, nodes="n1").environment("", launched=True)
    said.clear()
    inside = prepare(given._replace(container=APPTAINER), environ=GIVEN, nodes="n1").environment("", launched=True)
    assert ("CONDA_PREFIX" in inside, inside["PATH"], said) == (False, "/usr/bin", [])
