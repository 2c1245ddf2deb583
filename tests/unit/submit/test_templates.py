"""Templates: a site's templates that replace ours, and the source of each line of a script."""

import errno
import os
from pathlib import Path

import pytest

from slurm_plugin import templates
from slurm_plugin.errors import UsageError
from slurm_plugin.launch import MODES
from tests.refusals import refusal_of

VALUES = {
    "experiment": "", "directives": ("--nodes=2", "--time=5"), "job": "j", "mode": "single", "nodes": 2, "slots": 1,
    "size": "2 x 1", "source": "JOB.yaml",
    "grace": False,
    "cpus": "",
    "modules": "",
    "env": (("A", "two\nlines"),), "workdir": "/w", "note": "", "launch": "", "slurm_plugin": "/bin/slurm-plugin",
    "check": "",
    "python": "",
    "plan": '{\n  "mode": "single"\n}', "command": "true", "tasks": (),
}  # fmt: skip


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Discard the environments of other tests."""
    templates.environment.cache_clear()


def own(site: Path, name: str, text: str) -> Path:
    """Write a template of the site."""
    file = site / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_without_any(tmp_path: Path) -> None:
    """Ours are used if the site has none, or no directory for them."""
    ours = templates.render("job/single.sh.j2", site=None, **VALUES)
    assert ours.startswith("#!/bin/bash\n#SBATCH --nodes=2\n")
    assert templates.render("job/single.sh.j2", site=tmp_path / "none", **VALUES) == ours
    templates.environment.cache_clear()
    own(tmp_path, "job/pytorch.sh.j2", "of another mode")
    assert templates.render("job/single.sh.j2", site=tmp_path, **VALUES) == ours


def test_in_the_place_of_ours(tmp_path: Path) -> None:
    """The whole template of one mode, or the base of all."""
    own(tmp_path, "job/single.sh.j2", "#!/bin/bash\n{{ command }}\n")
    assert templates.render("job/single.sh.j2", site=tmp_path, **VALUES) == "#!/bin/bash\ntrue\n"
    templates.environment.cache_clear()
    own(tmp_path, "job/base.sh.j2", "base {% block environment %}{% endblock %}\n")
    assert templates.render("job/script.sh.j2", site=tmp_path, **VALUES).startswith("base ")


def test_a_block_of_ours(tmp_path: Path) -> None:
    """A site adds lines to every mode and keeps the rest: ours has another name."""
    for mode in MODES:
        text = '{% extends "shipped/job/base.sh.j2" %}\n{% block environment %}\nmodule load cuda\n{% endblock %}\n'
        own(tmp_path, "job/base.sh.j2", text)
        script = templates.render(f"job/{mode}.sh.j2", site=tmp_path, **VALUES)
        assert script.count("\nmodule load cuda\n") == 1, mode
        assert [*filter(None, script.replace("module load cuda\n", "").split("\n"))] == [
            *filter(None, templates.render(f"job/{mode}.sh.j2", site=None, **VALUES).split("\n"))
        ], mode


def test_a_mistake(tmp_path: Path) -> None:
    """The message has the fault and its place, and what to compare it with."""
    cases = [
        ("one\n{{ nothing }}\n", "'nothing' is undefined"),
        ("one\n{% endfor %}\n", "line 2: Encountered unknown tag 'endfor'"),
        ('{% extends "job/none.j2" %}\n', "found no job/none.j2"),
        ("{{ nodes + plan }}\n", "unsupported operand"),
        ("{{ 1 // 0 }}\n", "division"),
        ('{% extends "job/single.sh.j2" %}\n', "recursion"),
    ]
    for text, said in cases:
        own(tmp_path, "job/single.sh.j2", text)
        caught = refusal_of(UsageError, templates.render, "job/single.sh.j2", site=tmp_path, **VALUES)
        assert said in caught, text
        assert "single.sh.j2" in caught, text
        assert str(templates.templates_directory()) in caught, text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
@pytest.mark.parametrize("what", ["owner", "mode", "directory"])
def test_one_that_others_can_change(tmp_path: Path, what: str) -> None:
    """It is refused: it becomes a script of every user, and of root."""
    file = own(tmp_path, "job/single.sh.j2", "true\n")
    if what == "owner":
        os.chown(file, 20001, 0)
    elif what == "mode":
        file.chmod(0o646)
    else:
        file.parent.chmod(0o777)
    with pytest.raises(UsageError, match="can be changed by others than root") as caught:
        templates.render("job/single.sh.j2", site=tmp_path, **VALUES)
    assert "chmod go-w" in str(caught.value)


def test_one_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable file or directory is an error: the site's lines would be missing."""
    file = own(tmp_path, "job/single.sh.j2", "true\n")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    with monkeypatch.context() as patch:
        patch.setattr("jinja2.loaders.open", refused, raising=False)
        with pytest.raises(UsageError, match=r"single.sh.j2: Permission denied\n  run: chmod go\+r"):
            templates.render("job/single.sh.j2", site=tmp_path, **VALUES)
    templates.environment.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(templates.os, "scandir", refused)
        with pytest.raises(UsageError, match="a site's templates are for all to read"):
            templates.render("job/single.sh.j2", site=tmp_path, **VALUES)
    file.write_bytes(b"\xff\n")
    with pytest.raises(UsageError, match="can't decode byte"):
        templates.render("job/single.sh.j2", site=tmp_path, **VALUES)


def test_where_lines_come_from(tmp_path: Path) -> None:
    """Every line has its file and line number. Lines of a value have the line of the value."""
    text = '{% extends "shipped/job/base.sh.j2" %}\n{% block environment %}\n\nmodule load cuda\n{% endblock %}\n'
    file = own(tmp_path, "job/base.sh.j2", text)
    lines = templates.traced("job/single.sh.j2", site=tmp_path, **VALUES)
    assert [line.text for line in lines] == templates.render("job/single.sh.j2", site=tmp_path, **VALUES).splitlines()
    origins = {text: place for text, place, _ in lines}
    base = templates.templates_directory() / "job/base.sh.j2"
    numbered = {line: number for number, line in enumerate(base.read_text().splitlines(), 1)}
    assert origins["module load cuda"] == f"{file}:4"
    assert origins["#!/bin/bash"] == f"{base}:1"
    assert origins["#SBATCH --nodes=2"] == origins["#SBATCH --time=5"] == f"{base}:3"
    assert (
        origins["export A='two"]
        == origins["lines'"]
        == f"{base}:{numbered['export {{ variable }}={{ value | bash }}']}"
    )
    assert origins["set -euo pipefail"] == f"{base}:{numbered['set -euo pipefail']}"
    assert all(line.place for line in lines)
