"""The guard of EpilogSlurmctld reserves the nodes of a job that is requeued because of one of them."""

import re
from pathlib import Path

import pytest

from slurm_plugin.records import site_settings
from slurm_plugin.site.configuration import Recovery, SiteConfig
from slurm_plugin.site.files import render_site
from tests.unit.node.running import run

DOWN = "NodeName=n2 CPUs=8 State=DOWN* Reason=Not responding"
OURS = "NodeName=n2 CPUs=8 State=IDLE+COMPLETING+DRAIN Boards=1 Reason=slurm_plugin: gpu-check: x [job 7] [root@now]"
STALE = OURS.replace("+DRAIN", "")
FINE = "NodeName=n2 CPUs=8 State=IDLE+COMPLETING"
SHARED = "NodeName=n1 CPUs=8 State=MIXED+COMPLETING"
MARKED = "[sp1;retries=3;ib=auto;run=0;x=1]"
NO_MARK = "[sp1;retries=3;ib=auto]"
# The job's comment, its restart count in the hook, Slurm's answer about its nodes -> the number of requests for them,
# and the seconds of the reservation (0: none).
ENDS = {
    "marked, requeued": (MARKED, "1", FINE, (1, 20)),
    "marked, not counted yet": ("mine [sp1;retries=3;ib=auto;run=1;x=0,2] too", "1", FINE, (1, 20)),
    "marked by a run before": ("[sp1;retries=3;ib=auto;run=2;x=1]", "1", FINE, (1, 0)),
    "marked, no node is to blame": ("[sp1;retries=3;ib=auto;run=0]", "1", DOWN, (0, 0)),
    "marked, on nodes with others": (MARKED, "1", f"{SHARED}\n{FINE}", (1, 0)),
    "marked, and root knows it": (MARKED, "1", f"{SHARED}\n{DOWN}", (1, 60)),
    "a node is down": (NO_MARK, "1", f"{FINE}\n{DOWN}", (1, 60)),
    "a drain of ours": (NO_MARK, "0", OURS, (1, 60)),
    "a drain of ours that is over": (NO_MARK, "1", STALE, (1, 0)),
    "one that is over, another node drains": (NO_MARK, "1", f"NodeName=n1 State=DRAIN\n{STALE}", (1, 0)),
    "another job's drain": (NO_MARK, "1", OURS.replace("job 7", "job 71"), (1, 0)),
    "all is well": (NO_MARK, "1", FINE, (1, 0)),
    "no restarts": ("[sp1;retries=0;ib=auto]", "1", DOWN, (0, 0)),
}


def made(seconds: int = 20) -> list[str]:
    """Return the arguments of a reservation of these seconds; none for 0."""
    words = f"Users=root StartTime=now EndTime=now+{seconds} Nodes=n[1-3] Flags=IGNORE_JOBS"
    return [f"ReservationName=slurm_plugin_7_1 {words}"] if seconds else []


def site(directory: Path, nice: int = 1000) -> Path:
    """Make a hook's site whose scontrol writes its arguments, and prints what is in `nodes`."""
    python, scontrol = directory / "python", directory / "scontrol"
    python.write_text(
        f'#!/bin/sh\necho 3 11\necho "${site_settings.RESERVATION_MADE}" >{directory}/told\n'
    )  # its version, first
    scontrol.write_text(
        f'#!/bin/sh\ncase $1 in -o) echo "$*" >>{directory}/asked; cat {directory}/nodes ;;\n'
        f'create) shift; echo "$*" >>{directory}/made; [ ! -e {directory}/refuses ] ;; esac\n'
    )
    for each in (python, scontrol):
        each.chmod(0o755)
    config = SiteConfig(
        python=str(python), slurm_bin=str(directory), spool_directory=str(directory), recovery=Recovery(nice=nice)
    )
    render_site(config, directory / "site", root=str(directory / "site"))
    return directory / "site/hooks/epilog_slurmctld"


def lines(path: Path) -> list[str]:
    """Return what scontrol wrote."""
    return path.read_text().splitlines() if path.exists() else []


def environ(comment: str, count: str) -> dict[str, str]:
    """Return slurmctld's environment of the hook."""
    nodes = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_RESTART_COUNT": count}
    return {"SLURM_JOB_ID": "7", "SLURM_JOB_COMMENT": comment, **nodes}


@pytest.mark.parametrize(("comment", "count", "nodes", "expected"), ENDS.values(), ids=ENDS)
def test_when_nodes_are_reserved(
    tmp_path: Path, comment: str, count: str, nodes: str, expected: tuple[int, int]
) -> None:
    """Root's verdict or the supervisor's mark must name a node."""
    hook = site(tmp_path)
    (tmp_path / "nodes").write_text(f"{nodes}\n")
    assert run(hook, environ(comment, count), tmp_path).returncode == 0
    assert lines(tmp_path / "asked") == ["-o show node n[1-3]"] * expected[0]
    found = [line.replace("_7_0 ", "_7_1 ") for line in lines(tmp_path / "made")]
    assert found == made(expected[1])
    assert lines(tmp_path / "told") == [f"slurm_plugin_7_{count}" if found else ""]


def test_slurm_refuses(tmp_path: Path) -> None:
    """Its nodes are in another reservation: the hook goes on, and there is nothing to delete."""
    hook = site(tmp_path)
    (tmp_path / "refuses").touch()
    (tmp_path / "nodes").write_text(f"{FINE}\n")
    assert run(hook, environ(MARKED, "1"), tmp_path).returncode == 0
    assert lines(tmp_path / "made") == made()
    assert lines(tmp_path / "told") == [""]


def test_a_site_that_puts_no_job_first(tmp_path: Path) -> None:
    """`recovery.nice: 0` reserves no nodes."""
    assert "scontrol" not in re.sub("#.*", "", site(tmp_path, nice=0).read_text())


def test_an_end_without_nodes(tmp_path: Path) -> None:
    """Nothing is reserved, and no request is sent."""
    hook = site(tmp_path)
    given = {name: value for name, value in environ("[sp1;retries=3]", "0").items() if "NODELIST" not in name}
    assert run(hook, given, tmp_path).returncode == 0
    assert lines(tmp_path / "asked") == lines(tmp_path / "made") == []
