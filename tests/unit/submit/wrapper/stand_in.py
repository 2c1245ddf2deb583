"""Our `sbatch` as users have it, with a fake in place of the real sbatch."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
# A script, not ELF, so the variable against endless calls is set. It prints everything that it was given. Of a batch
# script of ours in a file: `command` is its path, which is not in `argv`; `stdin` its content.
REAL = f"""#!{sys.executable} -IS
import json, os, re, sys
argv, script, command = sys.argv[1:], sys.stdin, ""
if argv and re.search(r"/\\.[^/]+\\.[0-9a-f]{{8}}$", argv[-1]):
    command = argv.pop()
    script = open(command)
print(json.dumps({{"argv": argv, "stdin": script.buffer.read().decode("latin1") if script else "", "command": command,
                  "guard": os.environ.get("SLURM_PLUGIN_SBATCH", "")}}))
sys.exit(7)
"""


def beside(directory: Path) -> Path:
    """Make the directories `ours` and `real`, with our sbatch and a fake of the real one. Return `directory`."""
    for name in ("ours", "real"):
        (directory / name).mkdir()
    (directory / "ours" / "sbatch").symlink_to(launcher(directory))
    program(directory / "real" / "sbatch", REAL)
    return directory


def launcher(directory: Path) -> Path:
    """Write the launcher that `pip install` would make for this checkout. No machine has its slurm_bin."""
    path = directory / "slurm-plugin"
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})",
        "from slurm_plugin.records import site_settings; site_settings.DEFAULT_ROOT = '/nonexistent'",
        "from slurm_plugin.__main__ import main; sys.exit(main())",
    )
    program(path, "\n".join((f"#!{sys.executable} -S", *code, "")))
    return path


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def run(real: Path, *words: str, stdin: str = "", path: str = "ours:real") -> "subprocess.CompletedProcess[bytes]":
    """Run `sbatch` from the first directory of `path`."""
    folders = [str(real / name) for name in path.split(":")]
    return subprocess.run(
        [f"{folders[0]}/sbatch", *words],
        input=stdin.encode("latin1"),
        capture_output=True,
        check=False,
        cwd=real,
        env={"PATH": ":".join(folders)},
    )


def given(done: "subprocess.CompletedProcess[bytes]") -> dict[str, object]:
    """Return what the fake sbatch was given."""
    assert (done.returncode, done.stderr) == (7, b"")
    found: dict[str, object] = json.loads(done.stdout)
    return found
