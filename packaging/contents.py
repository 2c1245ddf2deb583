"""What packaging/build asks of the packaged code: `site SITE-FILE DIRECTORY`, `documents PACKAGE SBOM DIRECTORY`."""

import json
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from slurm_plugin.records.site_settings import fingerprint
from slurm_plugin.site import configuration, files
from slurm_plugin.site.compilation import SiteFile
from slurm_plugin.spec.submit_config import DEFAULT_PATH

IN_THE_ARCHIVE = ("slurm_plugin", "nvidia-ml-py")  # what slurm-plugin-node contains


def site(site_file: Path, directory: Path) -> None:
    """Render the site directory for its path on nodes."""
    source = SiteFile(str(DEFAULT_PATH), fingerprint(str(site_file)))
    files.render_site(configuration.load(site_file), directory, site_file=source)


def documents(package: str, sbom: Path, directory: Path) -> None:
    """Write the SBOM of a package and the list of its licences, with their texts. Fail if a licence is unknown."""
    bill = json.loads(sbom.read_text(encoding="utf-8"))
    if package.endswith("-node"):
        kept = [each for each in bill["components"] if each["name"] in IN_THE_ARCHIVE]
        refs = {each["bom-ref"] for each in kept}
        bill["components"] = kept
        bill["dependencies"] = [{"ref": each["ref"]} for each in bill["dependencies"] if each["ref"] in refs]
    (directory / "sbom.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    names = sorted({each["name"] for each in bill["components"]}, key=str.lower)
    (directory / "licences.txt").write_text("\n".join(licences(names)), encoding="utf-8")


def licences(names: list[str]) -> Iterator[str]:
    """Yield a line for each distribution, then the texts."""
    found = [metadata.distribution(name) for name in names]
    for each in found:
        yield f"{each.name} {each.version}: {licence(each)}"
    for each in found:
        for path in each.files or ():
            if ".dist-info" in str(path) and path.stem.upper() in {"LICENSE", "LICENCE", "COPYING", "NOTICE"}:
                yield f"\n==== {each.name}: {path.name} ====\n\n{path.read_text(encoding='utf-8')}"


def licence(found: metadata.Distribution) -> str:
    """Return the licence that a distribution names: an SPDX expression, a short text, or a classifier."""
    about = found.metadata
    classified = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier", []) if each.startswith("License")]
    short = about.get("License", "")
    named = about.get("License-Expression") or (short if "\n" not in short else "") or ", ".join(classified)
    if not named:
        raise SystemExit(f"{found.name} names no licence")
    return named


if __name__ == "__main__":
    if sys.argv[1] == "site":
        site(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        documents(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
