"""Where a look by hand happens: which settings hold, from which file, and what stands for a job."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import growth
from slurm_plugin import compiled, siteconfig, sitefile
from slurm_plugin.byhand import situation
from slurm_plugin.byhand.situation import Site
from slurm_plugin.errors import UsageError
from slurm_plugin.siteconfig import SiteConfig

STEP = {
    "SLURMD_NODENAME": "n2",
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_PARTITION": "ib",
    "SLURM_STEP_GPUS": "1,3",
}


@pytest.fixture
def nothing_deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a site directory or a site file; the directory where both would stand."""
    monkeypatch.setattr(compiled, "DEFAULT_ROOT", str(tmp_path))
    monkeypatch.setattr(sitefile, "DEFAULT_PATH", tmp_path / "site.yaml")
    return tmp_path


def site(tmp_path: Path, **gpu_check: Any) -> Site:
    """The defaults, with InfiniBand in one partition and GPUs that are files in a directory."""
    settings = siteconfig.compiled(SiteConfig(infiniband_partitions=("ib",)))
    settings["prechecks"]["gpu-check"] |= {"device": f"{tmp_path}/gpu%d", **gpu_check}
    return Site(settings, "a file")


def test_what_is_deployed_comes_first(nothing_deployed: Path) -> None:
    """The compiled settings, then the site file, then the defaults; the source says which."""
    assert situation.site(None) == Site(siteconfig.compiled(SiteConfig()), situation.DEFAULTS)
    (nothing_deployed / "site.yaml").write_text("max_retries: 5\n")
    found = situation.site(None)
    assert (found.settings["max_retries"], found.source) == (5, f"{nothing_deployed}/site.yaml")
    (nothing_deployed / "compiled.json").write_text(json.dumps({"v": compiled.VERSION, "max_retries": 7}))
    found = situation.site(None)
    assert (found.settings["max_retries"], found.source) == (7, f"{nothing_deployed}/compiled.json")


def test_a_site_file_that_is_named_comes_before_all(nothing_deployed: Path) -> None:
    """So that a new threshold can be tried before it is deployed; what is wrong in it is said."""
    (nothing_deployed / "compiled.json").write_text(json.dumps({"v": compiled.VERSION}))
    new = nothing_deployed / "new.yaml"
    new.write_text("prechecks: {disk-size: {shm: 2GB}}\n")
    found = situation.site(new)
    assert (found.settings["prechecks"]["disk-size"]["shm"], found.source) == (2 * 1024**3, str(new))
    new.write_text("prechecks: {disk-sise: {}}\n")
    with pytest.raises(UsageError, match="did you mean disk-size"):
        situation.site(new)


def test_settings_that_cannot_be_used_are_not_passed_over(nothing_deployed: Path) -> None:
    """Other thresholds than the site's would be worse than none."""
    (nothing_deployed / "compiled.json").write_text('{"v": 0}')
    with pytest.raises(UsageError, match=r"compiled\.json cannot be used: .*\n.*--config FILE"):
        situation.site(None)


def test_in_a_step_it_is_the_jobs(tmp_path: Path) -> None:
    """Its node, its hosts, its GPUs here, its partition and so whether it uses InfiniBand."""
    found = situation.context("hand", STEP, site(tmp_path, count=4))
    assert found == prechecks.Context("hand", "n2", ("n1", "n2"), (1, 3), infiniband=True, partition="ib")
    assert situation.job(STEP) == 17
    cpu = {**STEP, "SLURM_JOB_PARTITION": "cpu", "SLURM_STEP_GPUS": ""}
    (tmp_path / "gpu0").touch()
    assert situation.context("hand", cpu, site(tmp_path))[3:] == ((), False, "cpu")
    broken = {**STEP, "SLURM_JOB_NODELIST": "n[1-"}
    assert situation.context("hand", broken, site(tmp_path)).hosts == ()


def test_an_allocations_shell_is_no_job(tmp_path: Path) -> None:
    """It may stand on a login node: the job's GPUs are not there."""
    shell = {name: value for name, value in STEP.items() if name != "SLURMD_NODENAME"}
    found = situation.context("hand", shell, site(tmp_path))
    assert (found.node, found.hosts, found.gpus, found.infiniband, found.partition) == (
        os.uname().nodename.partition(".")[0], (), (), False, "",
    )  # fmt: skip
    assert situation.job(shell) is None


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
    """A node with one of them should have all that the site counts."""
    for name in files:
        (tmp_path / name).touch()
    assert situation.context("hand", {}, site(tmp_path, count=count)).gpus == gpus


def test_a_partition_that_is_asked_for(tmp_path: Path) -> None:
    """As for a job there: ulimit and infiniband are looked at outside of a job, too."""
    assert situation.context("hand", {}, site(tmp_path), partition="ib")[4:] == (True, "ib")


def test_what_is_named_is_mandatory() -> None:
    """And so is what the site makes so."""
    settings = {"prechecks": {"mandatory": ["dns"], "deadline_s": 1.0}}
    assert situation.checked(settings, ["ulimit"])["mandatory"] == ["dns", "ulimit"]
    assert settings["prechecks"]["mandatory"] == ["dns"]


def test_no_such_directory() -> None:
    """A site whose devices are elsewhere is no error."""
    assert situation.all_gpus({"device": "/nonexistent/gpu%d", "count": 4}) == ()


def test_a_look_by_hand_leaves_what_is_remembered_as_it_is(tmp_path: Path) -> None:
    """It compares with the samples of root's hooks; even root's own, with a shorter window, forgets none of them."""
    state = str(tmp_path / "run" / "state")
    limits, link = {"link_downed": 2}, "mlx5_0/1: link_downed"
    growth.look(state, "infiniband", {link: 7}, limits, window_s=3600.0)
    file = Path(state, "infiniband.json")
    before = file.read_text()
    remember = situation.checked({"prechecks": {"mandatory": []}})[situation.REMEMBER]
    found = growth.look(state, "infiniband", {link: 10}, {"link_downed": 0}, window_s=1e-6, remember=remember)
    assert found.verdict == "failed"
    assert file.read_text() == before
