"""The context of a check by hand: its settings, their source, and the job."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks.measure import growth
from slurm_plugin.cli.nodeside import check_context
from slurm_plugin.cli.nodeside.check_context import Site
from slurm_plugin.errors import UsageError
from slurm_plugin.records import site_settings
from slurm_plugin.site import compilation
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.spec import submit_config

STEP = {
    "SLURMD_NODENAME": "n2",
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_PARTITION": "ib",
    "SLURM_STEP_GPUS": "1,3",
}


@pytest.fixture
def nothing_deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory for a site directory and a site file, on a machine without either."""
    monkeypatch.setattr(site_settings, "DEFAULT_ROOT", str(tmp_path))
    monkeypatch.setattr(submit_config, "DEFAULT_PATH", tmp_path / "site.yaml")
    return tmp_path


def site(tmp_path: Path, **gpu_check: Any) -> Site:
    """Return the defaults, with InfiniBand in one partition and GPUs as files in a directory."""
    settings = compilation.compile_site(SiteConfig(infiniband_partitions=("ib",)))
    settings["prechecks"]["gpu-check"] |= {"device": f"{tmp_path}/gpu%d", **gpu_check}
    return Site(settings, "a file")


def test_what_is_deployed_comes_first(nothing_deployed: Path) -> None:
    """The compiled settings come first, then the site file, then the defaults. The source names them."""
    assert check_context.site(None) == Site(compilation.compile_site(SiteConfig()), check_context.DEFAULTS)
    (nothing_deployed / "site.yaml").write_text("max_retries: 5\n")
    found = check_context.site(None)
    assert (found.settings["max_retries"], found.source) == (5, f"{nothing_deployed}/site.yaml")
    (nothing_deployed / "compiled.json").write_text(json.dumps({"v": site_settings.VERSION, "max_retries": 7}))
    found = check_context.site(None)
    assert (found.settings["max_retries"], found.source) == (7, f"{nothing_deployed}/compiled.json")


def test_a_site_file_that_is_named_comes_before_all(nothing_deployed: Path) -> None:
    """--config comes before the deployed settings, so a threshold can be tried; its mistakes are errors."""
    (nothing_deployed / "compiled.json").write_text(json.dumps({"v": site_settings.VERSION}))
    new = nothing_deployed / "new.yaml"
    new.write_text("prechecks: {disk-size: {shm: 2GB}}\n")
    found = check_context.site(new)
    assert (found.settings["prechecks"]["disk-size"]["shm"], found.source) == (2 * 1024**3, str(new))
    new.write_text("prechecks: {disk-sise: {}}\n")
    with pytest.raises(UsageError, match="did you mean disk-size"):
        check_context.site(new)


def test_settings_that_cannot_be_used_are_not_passed_over(nothing_deployed: Path) -> None:
    """Unusable settings are an error: other thresholds than the site's would mislead."""
    (nothing_deployed / "compiled.json").write_text('{"v": 0}')
    with pytest.raises(UsageError, match=r"compiled\.json cannot be used: .*\n.*--config FILE"):
        check_context.site(None)


def test_in_a_step_it_is_the_jobs(tmp_path: Path) -> None:
    """A step has the job's node, hosts, GPUs on this node and partition, and so InfiniBand or not."""
    found = check_context.context("hand", STEP, site(tmp_path, count=4))
    assert found == prechecks.Context("hand", "n2", ("n1", "n2"), (1, 3), infiniband=True, partition="ib")
    assert check_context.job(STEP) == 17
    cpu = {**STEP, "SLURM_JOB_PARTITION": "cpu", "SLURM_STEP_GPUS": ""}
    (tmp_path / "gpu0").touch()
    assert check_context.context("hand", cpu, site(tmp_path))[3:6] == ((), False, "cpu")
    broken = {**STEP, "SLURM_JOB_NODELIST": "n[1-"}
    assert check_context.context("hand", broken, site(tmp_path)).hosts == ()


def test_an_allocations_shell_is_no_job(tmp_path: Path) -> None:
    """The shell of an allocation may be on a login node, which lacks the job's GPUs."""
    shell = {name: value for name, value in STEP.items() if name != "SLURMD_NODENAME"}
    found = check_context.context("hand", shell, site(tmp_path))
    assert (found.node, found.hosts, found.gpus, found.infiniband, found.partition) == (
        os.uname().nodename.partition(".")[0], (), (), False, "",
    )  # fmt: skip
    assert check_context.job(shell) is None


@pytest.mark.parametrize(
    ("files", "count", "gpus"),
    [
        ([], None, ()),
        ([], 4, ()),
        (["gpu0", "gpu2", "gpux", "agpu1", "gpu"], None, (0, 2)),
        (["gpu0"], 3, (0, 1, 2)),
    ],
    ids=["no GPUs", "a login node of a site with GPUs", "those that are there", "one is missing"],
)
def test_outside_of_a_job_the_nodes_own_gpus(
    tmp_path: Path, files: list[str], count: int | None, gpus: tuple[int, ...]
) -> None:
    """A node with one GPU should have as many as the site file says."""
    for name in files:
        (tmp_path / name).touch()
    assert check_context.context("hand", {}, site(tmp_path, count=count)).gpus == gpus


def test_a_partition_that_is_asked_for(tmp_path: Path) -> None:
    """--partition checks as for a job of it: ulimit and infiniband run outside a job, too."""
    assert check_context.context("hand", {}, site(tmp_path), partition="ib")[4:6] == (True, "ib")


def test_what_is_named_is_mandatory() -> None:
    """Named items are mandatory, and so are those of the site file."""
    settings = {"prechecks": {"mandatory": ["dns"], "deadline_s": 1.0}}
    assert check_context.checked(settings, ["ulimit"])["mandatory"] == ["dns", "ulimit"]
    assert settings["prechecks"]["mandatory"] == ["dns"]


def test_no_such_directory() -> None:
    """A missing device directory is no error."""
    assert check_context.all_gpus({"device": "/nonexistent/gpu%d", "count": 4}) == ()


def test_a_look_by_hand_leaves_what_is_remembered_as_it_is(tmp_path: Path) -> None:
    """A check by hand compares with the samples of root's hooks and removes none of them."""
    state = str(tmp_path / "run" / "state")
    limits, link = {"link_downed": 2}, "mlx5_0/1: link_downed"
    growth.look(state, "infiniband", {link: 7}, limits, window_s=3600.0)
    file = Path(state, "infiniband.json")
    before = file.read_text()
    remember = check_context.checked({"prechecks": {"mandatory": []}})[check_context.REMEMBER]
    found = growth.look(state, "infiniband", {link: 10}, {"link_downed": 0}, window_s=1e-6, remember=remember)
    assert found.verdict == "failed"
    assert file.read_text() == before
