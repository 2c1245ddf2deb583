"""Mirrors slurm_plugin/launch/container.py: the options for each runtime, and refused values."""

import os
import subprocess

from slurm_plugin.errors import UsageError
from slurm_plugin.launch import container
from slurm_plugin.launch.container import Container
from tests.refusals import refusal_of

APPTAINER = Container("torch.sif", "apptainer")
PYXIS = Container("nvcr.io#nvidia/pytorch:24.01-py3", "pyxis")
FULL = Container(
    "torch.sif",
    "apptainer",
    ("/data:/data:ro", "/scratch"),
    "/workspace",
    writable=True,
    home=False,
    gpu="nv",
    env=("NCCL_DEBUG", "HOME"),
)
# The options that pyxis 0.24.0 registers (args.c, spank_opts).
OF_PYXIS = {
    *("container-image", "container-mounts", "container-workdir", "container-name", "container-save"),
    *("container-mount-home", "no-container-mount-home", "container-remap-root", "no-container-remap-root"),
    *("container-entrypoint", "no-container-entrypoint", "container-entrypoint-log", "container-writable"),
    *("container-readonly", "container-env", "container-unshare"),
}


def test_apptainer_is_a_word_before_the_program() -> None:
    """With only the requested options. No step has an option for it."""
    assert APPTAINER.inside(("./a.out", "a b")) == ("apptainer", "exec", "torch.sif", "./a.out", "a b")
    assert FULL.inside(("x",)) == (
        *("apptainer", "exec", "--nv", "--no-home", "--writable-tmpfs"),
        *("--bind=/data:/data:ro", "--bind=/scratch", "--pwd=/workspace", "torch.sif", "x"),
    )
    assert FULL.step == ()


def test_pyxis_is_options_of_srun() -> None:
    """The documented ones, each with its value in the same word. The program's words do not change."""
    assert PYXIS.step == (
        "--container-image=nvcr.io#nvidia/pytorch:24.01-py3",
        "--container-readonly",
        "--container-mount-home",
    )
    whole = FULL._replace(runtime="pyxis").step
    assert whole == (
        *("--container-image=torch.sif", "--container-mounts=/data:/data:ro,/scratch:/scratch"),
        *("--container-workdir=/workspace", "--container-writable", "--no-container-mount-home"),
        "--container-env=NCCL_DEBUG,HOME",
    )
    assert {word.removeprefix("--").partition("=")[0] for word in (*PYXIS.step, *whole)} <= OF_PYXIS
    assert PYXIS.inside(("x", "y")) == ("x", "y")


def test_what_a_task_is_told_in_a_container_of_pyxis() -> None:
    """The lines of a mode reach the program as from TaskProlog: each whole value, whatever it contains."""
    for shell in ["sh", "bash"]:
        values = {"RANK": "3", "A": 'two  words "x" $HOME * `id`', "B": "a=b\\n'"}
        lines = "\n".join(f"export {name}={value}" for name, value in values.items())
        told = 'printf "%s\\n" "$LINES_OF_IT"; printf "unset PATH\\n"'
        show = ["python3", "-c", "import os, sys; print([os.environ[name] for name in sys.argv[1:]])", *values]
        words = PYXIS._replace(told=told).inside(show)
        assert words[0] == "sh", shell
        environ = {**os.environ, "LINES_OF_IT": lines}
        done = subprocess.run([shell, *words[1:]], capture_output=True, text=True, check=True, env=environ)
        assert done.stdout == f"{list(values.values())}\n", shell


def test_its_exit_code_is_the_programs() -> None:
    """The shell that sets the variables has been replaced."""
    words = PYXIS._replace(told="echo export A=7").inside(("sh", "-c", "exit $A"))
    done = subprocess.run(words, check=False)
    assert done.returncode == 7


def test_the_job_is_there() -> None:
    """Its directory and what else it needs are mounted before the user's mounts, and the program starts there."""
    placed = FULL._replace(workdir="").placed("/home/ada/run", ("/ck", "/home/ada/run"))
    assert placed.mounts == ("/home/ada/run", "/ck", "/data:/data:ro", "/scratch")
    assert placed.workdir == "/home/ada/run"
    assert FULL.placed("/w").workdir == "/workspace"


def test_directories_with_separators() -> None:
    """Apptainer gets them with --mount, in CSV, and then all mounts in that form: their order stays. pyxis cannot."""
    where = "/home/ada/lr=0.1,bs=32"
    inside = APPTAINER._replace(mounts=("/data:/d:ro", r"/t/12\:30:/t:rw")).placed(where, (container.mount("/c:k"),))
    assert inside.inside(("x",)) == (
        *("apptainer", "exec"),
        '--mount=type=bind,"source=/home/ada/lr=0.1,bs=32","destination=/home/ada/lr=0.1,bs=32"',
        '--mount=type=bind,"source=/c:k","destination=/c:k"',
        '--mount=type=bind,"source=/data","destination=/d",ro',
        '--mount=type=bind,"source=/t/12:30","destination=/t"',
        *(f"--pwd={where}", "torch.sif", "x"),
    )
    assert '"source=/a""b"' in APPTAINER.placed('/a"b').inside(())[2]
    for path in (where, "/t/12:30"):
        said = refusal_of(UsageError, PYXIS.placed, path)
        assert said.startswith(f"'{path}': found a path that pyxis cannot mount; accepted: "), said
        assert said.endswith("or an image for apptainer, which accepts `,` and `:` there"), said


def test_whose_an_image_is() -> None:
    """As far as its form tells."""
    cases = [
        ("torch.sif", "apptainer"),
        ("/images/torch.sif", "apptainer"),
        ("oras://ghcr.io/a/b:1", "apptainer"),
        ("library://a/b", "apptainer"),
        ("/images/torch.sqsh", "pyxis"),
        ("nvcr.io#nvidia/pytorch:24.01-py3", "pyxis"),
        ("docker://nvcr.io#nvidia/pytorch", "pyxis"),
        ("docker://python:3.12", ""),
        ("python:3.12", ""),
        ("/images/torch#2/", ""),
    ]
    for image, runtime in cases:
        assert container.fits(image) == runtime, image


def test_a_mount() -> None:
    """Absolute paths, read-only or not."""
    for mount in ["/data", "/data:/d", "/data:/d:ro", "/data:/d:rw", "/my data:/d e"]:
        assert container.mount_problem(mount, "pyxis") == "", mount
    for mount in ["/a,b", r"/12\:30:/d", r"/12\:30:/12\:30:ro", "/^"]:
        assert container.mount_problem(mount, "apptainer") == "", mount


def test_a_mount_that_a_runtime_would_read_otherwise() -> None:
    """It is refused, with the accepted forms."""
    cases = [
        "",
        "data",
        "./data:/d",
        "/data:d",
        "/data:",
        "/data:/d:",
        "/data:/d:x",
        "/d:/d:ro:ro",
        "/a\n",
        "/a\\",
    ]
    for runtime, more in (("apptainer", []), ("pyxis", ["/a,/b", "/^", r"/12\:30", '/"'])):
        for mount in (*cases, *more):
            said = container.mount_problem(mount, runtime)
            assert said.startswith("accepted: SRC, SRC:DST or SRC:DST:ro"), (runtime, mount)


def test_variables_that_stand_above_the_images_own() -> None:
    """Apptainer needs them under another name, and never HOME. pyxis has an option."""
    environ = {"NCCL_DEBUG": "WARN", "HOME": "/h", "OTHER": "1"}
    assert FULL.variables(environ) == {"APPTAINER_NO_EVAL": "1", "APPTAINERENV_NCCL_DEBUG": "WARN"}
    assert FULL._replace(runtime="pyxis").variables(environ) == {}
