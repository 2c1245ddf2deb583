"""Which of the known releases a version belongs to."""

import pytest

from slurm_plugin.slurm import releases


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("22.05.8", "22.05"),
        ("22.05", "22.05"),
        ("23.11.1", "22.05"),
        ("24.05.0", "22.05"),
        ("24.11.5", "24.11"),
        ("25.11.0-0rc1", "24.11"),
        ("26.05.5", "26.05"),
        ("27.11.0", "26.05"),
        ("100.01.0", "26.05"),
    ],
)
def test_a_version_gets_the_newest_release_that_is_not_newer(version: str, name: str) -> None:
    """An unlisted release behaves as the one before it."""
    found = releases.of(version)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    "version", ["21.08.1", "22.04.9", "2.05", "x", "", "22", "22.", "slurm-wlm 24.11.5", "٢٤.١١.٥", "99999.1"]
)
def test_older_and_unreadable_versions_have_none(version: str) -> None:
    """Such a version has no record."""
    assert releases.of(version) is None


def test_releases() -> None:
    """They are listed oldest first, no two alike, and each is found by its own name."""
    assert [release.series for release in releases.RELEASES] == sorted({r.series for r in releases.RELEASES})
    for release in releases.RELEASES:
        assert releases.of(release.name) is release
