"""Site files of a test, and their compiled settings."""

import json
from pathlib import Path
from typing import Any

from slurm_plugin.site.compilation import compile_site
from slurm_plugin.site.configuration import SiteConfig, load

GB = 1024**3
NEED_QUOTING = ("relative", "/a b", "/a;b", "/$(x)", "/a'b", "/a\nb", "/é", "")  # paths that a shell needs quoted


def site(tmp_path: Path, text: str) -> SiteConfig:
    """Write a site file with this text, and load it."""
    path = tmp_path / "site.yaml"
    path.write_text(text)
    return load(path)


def as_json(config: SiteConfig) -> Any:
    """Return the compiled settings as a hook reads them."""
    return json.loads(json.dumps(compile_site(config)))
