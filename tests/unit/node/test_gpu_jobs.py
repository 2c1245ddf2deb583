"""The files that say which job uses which GPU, and the GPUs that Slurm's environment names."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from prechecks import boot_state
from slurm_plugin.node import cleanup, gpu_jobs
from tests.fakes import FakeSlurm, job
from tests.unit.node.bad_node import default_site
from tests.unit.node.rendered import Site
from tests.waiting import HANG_S

UUID = "MIG-265a219d-a49f-578a-825d-222c72699c16"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the settings of a site with both maps, below the test's directory."""
    monkeypatch.setattr(gpu_jobs, "MIG_S", HANG_S)
    monkeypatch.setattr(gpu_jobs, "LOCK_WAIT_S", HANG_S)
    monkeypatch.setattr(gpu_jobs, "JOBSTATS_DIRECTORY", str(tmp_path / "gpustat"))
    return {**default_site(tmp_path), "run_directory": str(tmp_path / "run"), "gpu_job_map": ["dcgm", "jobstats"]}


def begun(site: dict[str, Any], job_id: int, gpus: str, **environ: str) -> None:
    """Run the prolog's part for a job."""
    gpu_jobs.add(site, {"SLURM_JOB_ID": str(job_id), "SLURM_JOB_UID": "20001", "SLURM_JOB_GPUS": gpus, **environ})


def contents(site: dict[str, Any], kind: str) -> dict[str, str]:
    """Return the files of a map."""
    return {path.name: path.read_text() for path in sorted(Path(gpu_jobs._directory(site, kind)).iterdir())}


def test_a_job_begins_and_ends(site: dict[str, Any]) -> None:
    """Each of its GPUs has a file in both forms; then there is none."""
    begun(site, 7, "0,2")
    begun(site, 8, "1")
    assert contents(site, "dcgm") == {"0": "7\n", "1": "8\n", "2": "7\n"}
    assert contents(site, "jobstats") == {"0": "7 20001\n", "1": "8 20001\n", "2": "7 20001\n"}
    assert Path(site["run_directory"], "dcgm/0").stat().st_mode & 0o777 == 0o644
    gpu_jobs.remove(site, 7)
    assert contents(site, "dcgm") == {"1": "8\n"}
    gpu_jobs.remove(site, 8)
    gpu_jobs.remove(site, 9)
    assert (contents(site, "dcgm"), contents(site, "jobstats")) == ({}, {})


def test_jobs_that_share_a_gpu(site: dict[str, Any]) -> None:
    """Each has a line, and only its own line goes: the variables of jobs with shards are those of whole GPUs."""
    for job_id in (7, 8, 9):
        begun(site, job_id, "0", CUDA_VISIBLE_DEVICES="0")
    gpu_jobs.remove(site, 8)
    assert contents(site, "dcgm") == {"0": "7\n9\n"}
    assert contents(site, "jobstats") == {"0": "7 20001\n9 20001\n"}


def test_a_job_that_begins_again(site: dict[str, Any]) -> None:
    """Its GPUs are those of its last run, also if the earlier run had no epilog."""
    begun(site, 7, "0,1")
    begun(site, 7, "1,2")
    assert contents(site, "dcgm") == {"1": "7\n", "2": "7\n"}


def test_mig(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """dcgm-exporter reads GPU and instance, jobstats the UUID. Slurm's own numbers are not those of GPUs then."""
    monkeypatch.setattr(gpu_jobs, "mig_places", lambda instances: dict.fromkeys(instances, "3.1"))
    begun(site, 7, "12,13", CUDA_VISIBLE_DEVICES=f"{UUID},1")
    assert contents(site, "dcgm") == {"1": "7\n", "3.1": "7\n"}
    assert contents(site, "jobstats") == {"1": "7 20001\n", UUID: "7 20001\n"}
    gpu_jobs.remove(site, 7)
    assert (contents(site, "dcgm"), contents(site, "jobstats")) == ({}, {})


def test_mig_without_nvml(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only dcgm-exporter lacks the job, and the log says so. A driver that hangs does not stop the prolog."""
    said = []
    monkeypatch.setattr(gpu_jobs.syslog, "syslog", lambda _, line: said.append(line))
    monkeypatch.setattr(gpu_jobs, "mig_places", lambda _: time.sleep(600))
    monkeypatch.setattr(gpu_jobs, "MIG_S", 0.0)
    begun(site, 7, "", CUDA_VISIBLE_DEVICES=UUID)
    assert (contents(site, "dcgm"), contents(site, "jobstats")) == ({}, {UUID: "7 20001\n"})
    assert said == [f"dcgm-exporter does not get the job of {UUID}: not done after 0 s"]


FAKE_NVML = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = (void *)8;
  return strncmp(uuid, "MIG-", 4) ? 6 : 0;
}
int nvmlDeviceGetGpuInstanceId(void *device, unsigned *id) { *id = 5; return device == (void *)8 ? 0 : 2; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *device, void **gpu) { *gpu = (void *)16; return 0; }
int nvmlDeviceGetIndex(void *device, unsigned *index) { *index = 2; return device == (void *)16 ? 0 : 2; }
"""


def test_nvml(tmp_path: Path) -> None:
    """The calls of NVML as its reference describes them; what it refuses is an error with the call's name."""
    (tmp_path / "nvml.c").write_text(FAKE_NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "nvml.so", tmp_path / "nvml.c"], check=True)
    assert gpu_jobs.mig_places([UUID], str(tmp_path / "nvml.so")) == {UUID: "2.5"}
    with pytest.raises(OSError, match="nvmlDeviceGetHandleByUUID answers 6"):
        gpu_jobs.mig_places(["GPU-1"], str(tmp_path / "nvml.so"))


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"SLURM_JOB_GPUS": "0,3"}, ("0", "3")),
        ({"SLURM_JOB_GPUS": "3", "CUDA_VISIBLE_DEVICES": "0"}, ("3",)),
        ({"CUDA_VISIBLE_DEVICES": "2"}, ("2",)),
        ({"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "GPU-03aa20a1-2e97"}, ("0",)),
        ({"SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": f"{UUID},{UUID}"}, (UUID,)),
        ({"SLURM_JOB_GPUS": "0,../etc,0/1,.5,²,99999,NoDevFiles"}, ("0",)),
        ({"CUDA_VISIBLE_DEVICES": "MIG-../x,MIG-GPU-03aa/1/0"}, ()),
        ({}, ()),
    ],
)
def test_which_gpus(environ: dict[str, str], found: tuple[str, ...]) -> None:
    """Numbers of GPUs and UUIDs of MIG instances, and nothing that is no file name."""
    assert gpu_jobs.devices(environ) == found


def test_what_a_killed_hook_left(site: dict[str, Any]) -> None:
    """The next hook writes what is missing and removes what is too much. Files with other names stay."""
    begun(site, 7, "0,1")
    place = Path(site["run_directory"], "dcgm")
    (place / "1").unlink()
    (place / "0").write_text("")
    for name in ("5", "5.1", "notes", ".5"):
        (place / name).write_text("99\n")
    gpu_jobs.remove(site, 8)
    assert contents(site, "dcgm") == {"0": "7\n", "1": "7\n", "notes": "99\n", ".5": "99\n"}


def test_jobs_without_an_epilog(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The periodic check asks Slurm about old jobs whose users have no process here, once in a while."""
    door = FakeSlurm([job(8, state="RUNNING", nodes="n[1-2]")])
    for each in (7, 8, 9):
        begun(site, each, str(each), SLURM_JOB_UID=str(20000 + each))
    monkeypatch.setattr(cleanup, "users_of_processes", lambda: {20009})
    gpu_jobs.sweep(site, "n1", lambda: door)
    assert door.questions == []
    monkeypatch.setattr(gpu_jobs.time, "time", lambda: time.clock_gettime(time.CLOCK_REALTIME) + cleanup.OLD_S + 60)
    for _ in range(2):
        gpu_jobs.sweep(site, "n1", lambda: door)
        assert contents(site, "dcgm") == {"8": "8\n", "9": "9\n"}
    assert door.questions == [("jobs", (7, 8))]
    door.refusals["jobs", None] = 9
    monkeypatch.setattr(cleanup, "users_of_processes", lambda: {20008})
    gpu_jobs.sweep(site, "n1", lambda: door)  # without an answer every job stays
    assert contents(site, "dcgm") == {"8": "8\n", "9": "9\n"}


def test_a_record_of_another_version(site: dict[str, Any]) -> None:
    """What it does not fit is dropped."""
    boot_state.save(site["prechecks"]["state"], gpu_jobs.ROW, {"7": "x", "8": [1], "x": [1, 2.0, [], {}]})
    begun(site, 9, "0")
    assert contents(site, "dcgm") == {"0": "9\n"}
    assert list(boot_state.load(site["prechecks"]["state"], gpu_jobs.ROW)) == ["9"]


def test_a_directory_that_is_not_roots(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is written into it, and the log says so."""
    said = []
    monkeypatch.setattr(gpu_jobs.syslog, "syslog", lambda _, line: said.append(line))
    (tmp_path / "gpustat").mkdir()
    os.chown(tmp_path / "gpustat", 20001, -1)
    begun(site, 7, "0")
    assert contents(site, "jobstats") == {}
    assert said == [f"the jobs of the GPUs cannot be written: {tmp_path}/gpustat: not owned by root; remove it"]


def test_switched_off(site: dict[str, Any], tmp_path: Path) -> None:
    """Nothing is written."""
    site["gpu_job_map"] = []
    begun(site, 7, "0")
    gpu_jobs.remove(site, 7)
    gpu_jobs.sweep(site, "n1", FakeSlurm)
    assert not (tmp_path / "run").exists()


def test_python_starts_for_jobs_with_gpus(tmp_path: Path) -> None:
    """For the map a job with GPUs needs its prolog and its epilog, also without a token; others do not."""
    (tmp_path / "maps").mkdir()
    (tmp_path / "none").mkdir()
    maps, none = Site(tmp_path / "maps", maps=True), Site(tmp_path / "none")
    for each, job_id, environ, starts in (
        (maps, "7", {"SLURM_JOB_GPUS": "0"}, ["hook prolog", "hook epilog"]),
        (maps, "8", {"SLURM_JOB_GPUS": "0"}, ["hook prolog", "hook epilog"]),
        (maps, "8", {"CUDA_VISIBLE_DEVICES": UUID}, ["hook prolog", "hook epilog"]),
        (maps, "8", {}, []),
        (none, "8", {"SLURM_JOB_GPUS": "0"}, []),
    ):
        each.interpreter("")
        for name in ("prolog", "epilog"):
            each.hook(name, None, **{"SLURM_JOB_ID": job_id, **environ})
        assert [line[line.index("hook") :] for line in each.started] == starts, (job_id, environ)
