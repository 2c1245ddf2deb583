"""`slurm-plugin`: what nodes and batch scripts call needs the standard library alone; everything else is click's."""

import sys

# Verbs that also run on nodes, from the site's own copy of this code, where no package is installed.
NODE_SIDE = {
    "check": "slurm_plugin.byhand.check",
    "history": "slurm_plugin.byhand.history",
    "hook": "slurm_plugin.hooks",
    "hosts": "slurm_plugin.job.hosts",
    "job": "slurm_plugin.job",
    "release": "slurm_plugin.byhand.release",
    "rerun": "slurm_plugin.byhand.rerun",
    "sbatch": "slurm_plugin.wrapper",
    "shell": "slurm_plugin.byhand.shell",
    "why": "slurm_plugin.byhand.why",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 fine, 1 it failed, 2 wrong usage, 3 something is missing."""
    args = sys.argv[1:] if argv is None else argv
    called = "" if argv is not None else sys.argv[0].rpartition("/")[2]
    if called == "sbatch":  # put on the PATH under that name
        args = [called, *args]
    verb = NODE_SIDE.get(args[0]) if args else None
    if verb:
        code: int = __import__(verb, fromlist=["main"]).main(args[1:])  # as import_module, which costs a hook 1 ms
        return code
    try:
        from slurm_plugin.cli import main as everything  # noqa: PLC0415 - loads packages that nodes need not have
    except ModuleNotFoundError as error:
        print(f"slurm-plugin: {error.name} is not installed here: only {', '.join(NODE_SIDE)} run", file=sys.stderr)
        print("  for the whole command line: pip install slurm_plugin", file=sys.stderr)
        if args[:1] == ["run"]:
            print(
                "  a spec that is a batch script names that one in its first line: render --batch does", file=sys.stderr
            )
        return 3
    return everything(args)


if __name__ == "__main__":
    sys.exit(main())
