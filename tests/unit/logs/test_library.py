"""Where signatures come from: this release, the site, and the file that machines without YAML read."""

from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.logs import library, signature
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.doctor.measure import differences
from slurm_plugin.site.files import render_site, rendered
from tests.unit.pages import page, rows

OWN = """- {id: license, role: root, class: external_service, pattern: no license left, example: no license left,
 source: x}"""


@pytest.fixture
def of_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The site's file of signatures."""
    monkeypatch.setattr(library, "THE_SITES", tmp_path / "signatures.d")
    library.THE_SITES.mkdir()
    (library.THE_SITES / "a.yaml").write_text(OWN)
    return library.THE_SITES / "a.yaml"


def shown(found: tuple[signature.Signature, ...]) -> list[tuple[object, ...]]:
    """What decides; the example and the source are for people."""
    return [(*each[:3], each.pattern.text, *each[4:11]) for each in found]


def test_the_compiled_file(of_site: Path, tmp_path: Path) -> None:
    """It has the same signatures, the site's too. They are compiled when they are first used."""
    (tmp_path / "s.json").write_text(library.compile_all())
    found = signature.load(tmp_path / "s.json")
    assert shown(found) == shown(library.load())
    assert "license" in {each.id for each in found}
    assert not any("search" in vars(each.pattern) for each in found)


@pytest.mark.parametrize("text", ["", "[]", '{"v": 99, "signatures": []}', "{"])
def test_another_file(tmp_path: Path, text: str) -> None:
    """It is refused."""
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        signature.load(tmp_path / "s.json")


def test_the_site_directory(of_site: Path, tmp_path: Path) -> None:
    """An installation writes it, a later change of the site's signatures makes it differ, a mistake is refused."""
    config = SiteConfig()
    render_site(config, tmp_path / "site")
    root = str(tmp_path / "site")
    assert "license" in {each.id for each in signature.load(tmp_path / "site" / signature.FILE)}
    assert signature.FILE not in differences(tmp_path / "site", rendered(config, root)).changed
    of_site.write_text(OWN.replace("no license left", "no license"))
    assert signature.FILE in differences(tmp_path / "site", rendered(config, root)).changed
    of_site.write_text(OWN.replace("role: root", "role: oops"))
    with pytest.raises(UsageError, match=r"a\.yaml: license: role: found 'oops'"):
        rendered(config, root)


def test_the_classes_of_the_page() -> None:
    """The page on diagnoses has the table of the code."""
    found = [[cell.strip("`") for cell in row] for row in rows(page("reference/diagnosis.md"), "class")]
    again = {True: "may succeed", False: "fails", None: "not known"}
    wanted = [
        [name, each.means, each.whose, each.verdict, again[each.retry]] for name, each in signature.CLASSES.items()
    ]
    assert found == wanted
