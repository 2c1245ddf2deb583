"""The container that a program runs in, as each runtime is told of it. Values in, words out; standard library only.

Apptainer is a program that stands before the user's: `apptainer exec OPTIONS IMAGE PROGRAM` (internal/pkg/util/env and
pkg/runtime/engine/apptainer/config/bind.go of 1.5.3). Pyxis is a plugin of Slurm's that gives srun options (args.c and
pyxis_slurmstepd.c of 0.24.0): whatever srun starts is in the container from before TaskProlog on, so TaskProlog is
looked for in there, and our own cannot know the node's files. What it says elsewhere, the words say there themselves.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from slurm_plugin.errors import UsageError

if TYPE_CHECKING:
    import argparse

APPTAINER, PYXIS = "apptainer", "pyxis"
RUNTIMES: Final = (APPTAINER, PYXIS)
OPTIONS: Final = ("ro", "rw")  # of a mount; both runtimes know them
IMAGE_FLAG: Final = "container-image"  # of srun, where Slurm has pyxis
# What the image's form says; any other fits both.
_APPTAINERS = re.compile(r".*\.sif|(?:oras|library|shub)://.*", re.DOTALL)
_PYXIS = re.compile(r".*\.sqsh|(?:docker://|dockerd://)?[^/]*#.*", re.DOTALL)
# A path that neither runtime takes apart: both read `,` and `:`, Apptainer `\` and `^` too.
_PATH = re.compile(r"/[^\x00-\x1f\x7f,:^\\\"\ud800-\udfff]*")
# Variables that Apptainer does not take (env/create.go): it says so, once for each rank.
_NOT_APPTAINERS: Final = frozenset({"HOME"})
# Without it a shell in the container would expand what is in the values (apptainer(1), --no-eval).
_AS_IT_STANDS: Final = "APPTAINER_NO_EVAL"
# The task's own variables, from the lines that TaskProlog prints elsewhere: `export NAME=value`, each value to its end.
_TELL: Final = (
    "IFS='\n'; set -f; for line in $(eval \"$0\"); do"
    ' case $line in "export "*) export "${line#export }" ;; esac; done; unset IFS line; set +f; exec "$@"'
)
SHELL: Final = ("/bin/sh", "-c", 'exec "$(command -v bash || echo sh)"')  # bash, where the image has it


class Container(NamedTuple):
    """One container, alike on all nodes."""

    image: str
    runtime: str
    mounts: tuple[str, ...] = ()  # SRC[:DST[:ro|rw]], in the order in which they are made
    workdir: str = ""  # where the program starts; empty: in the job's own directory
    writable: bool = False  # whether the program may write to the image; what it writes is gone at its end
    home: bool = True  # whether the user's home directory is there
    gpu: str = ""  # what Apptainer has to look for: `nv`, `rocm`
    env: tuple[str, ...] = ()  # names of variables that stand above the image's own
    told: str = ""  # lines of sh that print what differs from task to task, where no TaskProlog can say it

    def placed(self, directory: str, mounts: Sequence[str] = ()) -> "Container":
        """The same for a job in this directory, which is mounted, as these others are; the user's own stand above.

        Raises UsageError for a path that no runtime can mount.
        """
        ours = tuple(dict.fromkeys((directory, *mounts)))
        if wrong := next(filter(mount_problem, ours), ""):
            raise UsageError(f"{wrong!r}: found a path that no container can have; {mount_problem(wrong)}")
        return self._replace(mounts=(*ours, *self.mounts), workdir=self.workdir or directory)

    @property
    def step(self) -> tuple[str, ...]:
        """The options of the srun that starts the program."""
        if self.runtime != PYXIS:
            return ()
        mounts = ",".join(f"{each}:{each}" if ":" not in each else each for each in self.mounts)
        return (
            f"--{IMAGE_FLAG}={self.image}",
            *((f"--container-mounts={mounts}",) if mounts else ()),
            *((f"--container-workdir={self.workdir}",) if self.workdir else ()),
            "--container-writable" if self.writable else "--container-readonly",
            "--container-mount-home" if self.home else "--no-container-mount-home",
            *((f"--container-env={','.join(self.env)}",) if self.env else ()),
        )

    def inside(self, words: Sequence[str]) -> tuple[str, ...]:
        """The words that start these in the container; with pyxis on a step that has its options."""
        if self.runtime == PYXIS:
            return ("sh", "-c", _TELL, self.told, *words) if self.told else tuple(words)
        return (
            *(APPTAINER, "exec"),
            *((f"--{self.gpu}",) if self.gpu else ()),
            *(() if self.home else ("--no-home",)),
            *(("--writable-tmpfs",) if self.writable else ()),
            *(f"--bind={each}" for each in self.mounts),
            *((f"--pwd={self.workdir}",) if self.workdir else ()),
            self.image,
            *words,
        )

    def has(self, argv: Sequence[str]) -> bool:
        """Whether a launch starts its program in here."""
        marks = self.step[:1] if self.runtime == PYXIS else self.inside(())
        return all(mark in argv for mark in marks)

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What Apptainer has to find in the environment, so that these variables stand above the image's own."""
        if self.runtime == PYXIS:
            return {}
        names = [name for name in self.env if name in environ and name not in _NOT_APPTAINERS]
        return {_AS_IT_STANDS: "1", **{f"APPTAINERENV_{name}": environ[name] for name in names}}


def fits(image: str) -> str:
    """The runtime that an image is for, as its form says; empty where it does not."""
    if _APPTAINERS.fullmatch(image):
        return APPTAINER
    return PYXIS if _PYXIS.fullmatch(image) else ""


def mount_problem(text: str) -> str:
    """What is wrong with a mount; empty where nothing is."""
    source, *rest = text.split(":")
    paths, options = [source, *rest[:1]], rest[1:]
    if len(options) > 1 or not all(map(_PATH.fullmatch, paths)) or any(each not in OPTIONS for each in options):
        return (
            "accepted: SRC, SRC:DST or SRC:DST:ro, absolute paths without control characters and"
            ' ` , : ^ \\ " `; ro or rw'
        )
    return ""


def plain(path: str) -> bool:
    """Whether both runtimes can mount a path."""
    return not mount_problem(path) and ":" not in path


def arguments(parser: "argparse.ArgumentParser") -> "argparse.ArgumentParser":
    """The parser with the options by which a batch script tells of it."""
    parser.add_argument("--container-image", default="", help="the command runs in this image")
    parser.add_argument("--container-runtime", choices=RUNTIMES, default=APPTAINER)
    parser.add_argument("--container-mounts", default="", help="SRC[:DST[:ro]],...")
    parser.add_argument("--container-workdir", default="", help="where it starts in there")
    parser.add_argument("--container-writable", action="store_true")
    parser.add_argument("--container-no-home", action="store_true")
    parser.add_argument("--container-gpu", action="store_true", help="with the node's GPUs (apptainer)")
    parser.add_argument("--container-env", default="", help="NAME,...: variables that stand above the image's own")
    return parser


def options(container: Container) -> Iterator[str]:
    """A container as these options."""
    yield f"--container-image={container.image}"
    yield f"--container-runtime={container.runtime}"
    for name, values in (("mounts", container.mounts), ("env", container.env)):
        if values:
            yield f"--container-{name}={','.join(values)}"
    if container.workdir:
        yield f"--container-workdir={container.workdir}"
    if container.writable:
        yield "--container-writable"
    if not container.home:
        yield "--container-no-home"
    if container.gpu:
        yield "--container-gpu"


def of(given: "argparse.Namespace", gpu: str) -> Container | None:
    """The container of these options, None without; `gpu` is what the GPUs of this node are: `nv` or `rocm`."""
    if not given.container_image:
        return None
    return Container(
        given.container_image,
        given.container_runtime,
        tuple(filter(None, given.container_mounts.split(","))),
        given.container_workdir,
        writable=given.container_writable,
        home=not given.container_no_home,
        gpu=gpu if given.container_gpu else "",
        env=tuple(filter(None, given.container_env.split(","))),
    )
