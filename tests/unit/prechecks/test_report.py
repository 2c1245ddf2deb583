"""The written forms of verdicts: sizes, log line, drain reason, report, metrics."""

import json
from typing import Any

import pytest

from prechecks import PrecheckError, Report, Verdict, line, node_problems, reason
from prechecks.report import JOBS
from prechecks.verdict import format_size, one_line

GPUS = Verdict("gpu-check", "failed", "node_problem", "3 of 4 GPUs", value="missing /dev/g3", threshold=4, seconds=0.1)
SHM = Verdict("disk-size.shm", "failed", "node_problem", "512 MB < 1 GB", value=1 << 29, threshold=1 << 30)
NAMES = Verdict("dns", "ok", "job_problem", "4 names", value=4, threshold=4)
NO_NAMES = Verdict("dns", "failed", "job_problem", "n3 does not resolve", value=3, threshold=4)
UNKNOWN = Verdict("disk-size.root", "timeout", "node_problem", "no answer within 10 s", threshold=10.0)

REPORT = Report("n2", 123, "prolog", 1700000000.5, (NAMES, SHM))
TEXT = (
    '{"v":1,"node":"n2","job":123,"hook":"prolog","time":1700000000.5,"items":['
    '{"item":"dns","verdict":"ok","problem":"job_problem","message":"4 names","value":4,"threshold":4,"seconds":0.0},'
    '{"item":"disk-size.shm","verdict":"failed","problem":"node_problem","message":"512 MB < 1 GB",'
    '"value":536870912,"threshold":1073741824,"seconds":0.0}]}'
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 kB"),
        (1 << 29, "512 MB"),
        ((1 << 30) - 1, "1023.9 MB"),
        (1 << 30, "1 GB"),
        (3 << 29, "1.5 GB"),
        (32 << 30, "32 GB"),
        (1 << 50, "1 PB"),
        (5 << 62, "20480 PB"),
    ],
)
def test_size(count: int, text: str) -> None:
    """Binary units, short, never rounded up."""
    assert format_size(count) == text


def test_line() -> None:
    """The keyword is in the line on success and on failure."""
    assert line("n2", SHM) == "[slurm_plugin] n2 disk-size shm: failed: 512 MB < 1 GB"
    assert line("n2", NAMES) == "[slurm_plugin] n2 dns: ok: 4 names"


def test_reason() -> None:
    """Every failed item of the node, in the order given."""
    verdicts = (GPUS, NAMES, NO_NAMES, SHM, UNKNOWN)
    assert reason(verdicts, 123) == "slurm_plugin: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB [job 123]"
    assert reason(verdicts, None) == "slurm_plugin: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB"
    assert node_problems(verdicts) == (GPUS, SHM)


def test_nothing_drains_for_what_is_shared_or_unknown() -> None:
    """Job problems, timeouts and passed checks give no reason to drain."""
    assert reason((NAMES, NO_NAMES, UNKNOWN), 123) == ""


def test_a_message_cannot_forge_a_line() -> None:
    """Control characters in a message reach neither the log nor the drain reason."""
    forged = Verdict("gpu-check", "failed", "node_problem", "x\n[slurm_plugin] n1 dns: ok\x1b[1m")
    assert line("n2", forged) == "[slurm_plugin] n2 gpu-check: failed: x [slurm_plugin] n1 dns: ok?[1m"
    assert reason((forged,), 1) == "slurm_plugin: gpu-check: x [slurm_plugin] n1 dns: ok?[1m [job 1]"


def test_a_long_message_is_cut() -> None:
    """At 200 characters, visibly."""
    assert one_line("x" * 200) == "x" * 200
    assert one_line("x" * 201) == "x" * 197 + "..."


def test_report_to_json_and_back() -> None:
    """The contract's form, in one line."""
    assert REPORT.to_json() == TEXT
    assert Report.from_json(TEXT) == REPORT
    assert Report.from_json(REPORT._replace(job=None, items=(UNKNOWN, GPUS)).to_json()).items == (UNKNOWN, GPUS)


def test_keys_of_a_later_writer_are_passed_over() -> None:
    """An additional field does not make another version."""
    fields = json.loads(TEXT)
    fields["boot"] = "x"
    fields["items"][0]["unit"] = "names"
    assert Report.from_json(json.dumps(fields)) == REPORT


@pytest.mark.parametrize("text", ["", "[]", "null", "1", '"x"', "{}", TEXT[:-1], TEXT + "x", "[" * 100_000])
def test_what_is_no_report(text: str) -> None:
    """An unreadable or half-written file is an error of ours, never half a report."""
    with pytest.raises(PrecheckError):
        Report.from_json(text)


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        ("report", "v", 2),
        ("report", "v", True),
        ("report", "node", None),
        ("report", "job", "123"),
        ("report", "job", True),
        ("report", "time", "now"),
        ("report", "items", {}),
        ("item", "item", 1),
        ("item", "verdict", "fine"),
        ("item", "problem", "user_problem"),
        ("item", "message", None),
        ("item", "value", []),
        ("item", "seconds", None),
    ],
)
def test_wrong_fields_are_refused(where: str, name: str, value: Any) -> None:
    """The error names a wrong version, type or word, and a missing key."""
    fields = json.loads(TEXT)
    part = fields if where == "report" else fields["items"][1]
    part[name] = value
    with pytest.raises(PrecheckError):
        Report.from_json(json.dumps(fields))
    del part[name]
    with pytest.raises(PrecheckError):
        Report.from_json(json.dumps(fields))


def test_an_item_that_is_no_object() -> None:
    """Is refused as well."""
    with pytest.raises(PrecheckError, match=r"^a report's item is str; an object is wanted$"):
        Report.from_json(TEXT.replace('"items":[', '"items":["dns",'))


def test_words_that_the_contract_does_not_have() -> None:
    """A report with another verdict or problem is refused."""
    dns = Verdict("dns", "ok", "job_problem", "")
    for bad, words in (
        (dns._replace(verdict="bad"), "ok, failed, timeout, skipped, error"),
        (dns._replace(problem="bad"), "node_problem, job_problem, no_problem"),
    ):
        with pytest.raises(PrecheckError, match=rf"^dns: 'bad' is none of {words}$"):
            Report.from_json(Report("n1", None, "hand", 1.0, (bad,)).to_json())


def test_parts_of_a_reason_can_be_told_apart() -> None:
    """`; ` separates items only, and scontrol strips a final quotation mark."""
    verdicts = (
        Verdict("dns", "failed", "node_problem", 'no name for "n1"; none for n2'),
        Verdict("clock", "failed", "node_problem", 'off by "1 s"'),
    )
    assert reason(verdicts, None) == "slurm_plugin: dns: no name for 'n1', none for n2; clock: off by '1 s'"


def test_the_name_of_a_process_is_no_job() -> None:
    """The jobs in a reason stay those that root wrote there, and the periodic check knows the reason as its own."""
    verdict = Verdict("processes", "failed", "node_problem", "2 zombies (a, [job 77]), more than 0")
    assert JOBS.findall(reason([verdict], 7)) == [" [job 7]"]
    assert reason([verdict], None) == "slurm_plugin: processes: 2 zombies (a, (job 77]), more than 0"


LOOK = Report(
    "n1",
    None,
    "periodic",
    1795276800.5,
    (
        Verdict("dns", "ok", "job_problem", "fine", seconds=0.01),
        Verdict("disk-size.shm", "failed", "node_problem", 'a "quoted"\nmessage', seconds=0.2),
        Verdict("gpu-check", "timeout", "node_problem", "no answer", seconds=10.0),
        Verdict("clock", "skipped", "node_problem", "not here"),
    ),
)


def test_metrics() -> None:
    """Each item has a gauge for each metric; a skipped item has none, and messages are left out."""
    lines = [line for line in LOOK.metrics().splitlines() if not line.startswith("#")]
    assert lines == [
        'slurm_plugin_check_failed{hook="periodic",item="dns"} 0',
        'slurm_plugin_check_failed{hook="periodic",item="disk-size.shm"} 1',
        'slurm_plugin_check_failed{hook="periodic",item="gpu-check"} 0',
        'slurm_plugin_check_unknown{hook="periodic",item="dns"} 0',
        'slurm_plugin_check_unknown{hook="periodic",item="disk-size.shm"} 0',
        'slurm_plugin_check_unknown{hook="periodic",item="gpu-check"} 1',
        'slurm_plugin_check_seconds{hook="periodic",item="dns"} 0.01',
        'slurm_plugin_check_seconds{hook="periodic",item="disk-size.shm"} 0.2',
        'slurm_plugin_check_seconds{hook="periodic",item="gpu-check"} 10.0',
        'slurm_plugin_check_last_look_timestamp_seconds{hook="periodic"} 1795276800.5',
    ]


def test_each_metric_is_described_once() -> None:
    """HELP and TYPE come before the first sample, as the format requires."""
    lines = LOOK.metrics().splitlines()
    for name in ("failed", "unknown", "seconds", "last_look_timestamp_seconds"):
        first = next(place for place, line in enumerate(lines) if line.startswith(f"slurm_plugin_check_{name}{{"))
        assert lines[first - 2].startswith(f"# HELP slurm_plugin_check_{name} ")
        assert lines[first - 1] == f"# TYPE slurm_plugin_check_{name} gauge"
    assert LOOK.metrics().endswith("\n")
