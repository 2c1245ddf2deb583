"""The command-line words that start a program in a container, for each runtime. Pure; standard library only.

Apptainer is a command that precedes the user's program: `apptainer exec OPTIONS IMAGE PROGRAM` (internal/pkg/util/env
and pkg/runtime/engine/apptainer/config/bind.go of 1.5.3). Pyxis is a Slurm plugin that adds options to srun (args.c and
pyxis_slurmstepd.c of 0.24.0). It starts the container before TaskProlog runs. Slurm then looks for TaskProlog inside
the container, where TaskProlog cannot read the node's files. So the command itself sets the variables of a task.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from slurm_plugin.errors import UsageError

APPTAINER, PYXIS = "apptainer", "pyxis"
RUNTIMES: Final = (APPTAINER, PYXIS)
OPTIONS: Final = ("ro", "rw")  # of a mount; both runtimes know them
IMAGE_FLAG: Final = "container-image"  # an option of srun if Slurm has pyxis
# Images that only one runtime accepts. Any other image works with both.
_APPTAINERS = re.compile(r".*\.sif|(?:oras|library|shub)://.*", re.DOTALL)
_PYXIS = re.compile(r".*\.sqsh|(?:docker://|dockerd://)?[^/]*#.*", re.DOTALL)
_PATH = re.compile(r"/[^\x00-\x1f\x7f\\\ud800-\udfff]*")
# A shell would replace these in a path. A name may contain `$`: docker://$oauthtoken@nvcr.io#nvidia/pytorch
_UNEXPANDED = re.compile(r"[~$]|[./].*\$[A-Za-z_{]", re.DOTALL)
_COLON = re.compile(r"(?<!\\):")  # between the parts of a mount; `\:` is a colon in a path, as in Apptainer's --bind
# Separators in a path: pyxis has no escape for them, and Apptainer accepts them only with --mount.
_SEPARATORS = re.compile(r'[,:^"]')
# Variables that Apptainer refuses to set (env/create.go): each rank would print a message.
_NOT_APPTAINERS: Final = frozenset({"HOME"})
# Without this variable, a shell in the container would expand the values (apptainer(1), --no-eval).
_AS_IT_STANDS: Final = "APPTAINER_NO_EVAL"
# Sets the task's variables from the lines that TaskProlog would print: `export NAME=value`.
_TELL: Final = (
    "IFS='\n'; set -f; for line in $(eval \"$0\"); do"
    ' case $line in "export "*) export "${line#export }" ;; esac; done; unset IFS line; set +f; exec "$@"'
)
SHELL: Final = ("/bin/sh", "-c", 'exec "$(command -v bash || echo sh)"')  # bash if the image has it, else sh


class Container(NamedTuple):
    """One container, the same on all nodes."""

    image: str
    runtime: str
    mounts: tuple[str, ...] = ()  # SRC[:DST[:ro|rw]] with `\:` in paths, in the order in which they are made
    workdir: str = ""  # where the program starts; empty: the job's directory
    writable: bool = False  # whether the program may write to the image, until it ends
    home: bool = True  # whether to mount the user's home directory
    gpu: str = ""  # Apptainer's option for GPUs: `nv`, `rocm`
    env: tuple[str, ...] = ()  # names of variables that override those of the image
    told: str = ""  # lines of sh that print the variables of a task if TaskProlog cannot

    def placed(self, directory: str, mounts: Sequence[str] = ()) -> "Container":
        """Return the container for a job in `directory`. Mount `directory` and `mounts` before the user's own mounts.

        Raise UsageError for a path that cannot be mounted.
        """
        ours = tuple(dict.fromkeys((mount(directory), *mounts)))
        if wrong := next((each for each in ours if mount_problem(each, self.runtime)), ""):
            why = mount_problem(wrong, self.runtime)
            raise UsageError(
                f"{':'.join(_parts(wrong))!r}: found a path that {self.runtime} cannot mount; {why}\n"
                f"  give another directory as `workdir`, or an image for {APPTAINER}, which accepts `,` and `:` there"
            )
        return self._replace(mounts=(*ours, *self.mounts), workdir=self.workdir or directory)

    @property
    def step(self) -> tuple[str, ...]:
        """Return the options of the srun that starts the program."""
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
        """Return the words that start `words` in the container. For pyxis, srun also needs the options of `step`."""
        if self.runtime == PYXIS:
            return ("sh", "-c", _TELL, self.told, *words) if self.told else tuple(words)
        return (
            *(APPTAINER, "exec"),
            *((f"--{self.gpu}",) if self.gpu else ()),
            *(() if self.home else ("--no-home",)),
            *(("--writable-tmpfs",) if self.writable else ()),
            *self._binds(),
            *((f"--pwd={self.workdir}",) if self.workdir else ()),
            self.image,
            *words,
        )

    def _binds(self) -> Iterator[str]:
        """Yield Apptainer's options for the mounts. All are of one kind: `--mount` comes after every `--bind`."""
        split = [_parts(each) for each in self.mounts]
        if not any(_SEPARATORS.search(path) for parts in split for path in parts[:2]):
            yield from (f"--bind={each}" for each in self.mounts)
            return
        for source, *rest in split:
            fields = (f"source={source}", f"destination={rest[0] if rest else source}")
            quoted = ['"{}"'.format(each.replace('"', '""')) for each in fields]
            yield ",".join(["--mount=type=bind", *quoted, *(each for each in rest[1:] if each == "ro")])

    def has(self, argv: Sequence[str]) -> bool:
        """Return whether the launch with this argv starts its program in this container."""
        marks = self.step[:1] if self.runtime == PYXIS else self.inside(())
        return all(mark in argv for mark in marks)

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that make Apptainer set those of `env` in place of the image's values."""
        if self.runtime == PYXIS:
            return {}
        names = [name for name in self.env if name in environ and name not in _NOT_APPTAINERS]
        return {_AS_IT_STANDS: "1", **{f"APPTAINERENV_{name}": environ[name] for name in names}}


def fits(image: str) -> str:
    """Return the runtime that an image needs; empty if both accept it."""
    if _APPTAINERS.fullmatch(image):
        return APPTAINER
    return PYXIS if _PYXIS.fullmatch(image) else ""


def mount(path: str) -> str:
    """Return the mount of a path under its own name."""
    return path.replace(":", "\\:")


def _parts(text: str) -> list[str]:
    return [each.replace("\\:", ":") for each in _COLON.split(text)]


def mount_problem(text: str, runtime: str) -> str:
    """Return what is wrong with a mount; empty for nothing."""
    parts = _parts(text)
    paths, options = parts[:2], parts[2:]
    fits_form = len(options) <= 1 and all(each in OPTIONS for each in options) and all(map(is_path, paths))
    if fits_form and not (runtime == PYXIS and any(map(_SEPARATORS.search, paths))):
        return ""
    others = 'and ` , : ^ \\ " `' if runtime == PYXIS else "and backslashes, with `\\:` for a `:` in a path"
    return f"accepted: SRC, SRC:DST or SRC:DST:ro, absolute paths without control characters {others}; ro or rw"


def unexpanded(text: str) -> bool:
    """Return whether an image, a mount or a directory is a path with `~` or a variable, which no shell replaces."""
    return _UNEXPANDED.match(text) is not None


def is_path(text: str) -> bool:
    """Return whether a text is an absolute path without control characters and backslashes."""
    return _PATH.fullmatch(text) is not None
