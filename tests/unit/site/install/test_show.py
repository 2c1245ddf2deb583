"""Plans as text and as JSON."""

from slurm_plugin.site.files import Entry
from slurm_plugin.site.install import show
from slurm_plugin.site.install.machine import Change, Plan
from slurm_plugin.site.install.plan import install
from tests.unit.site.install.states import CONF, LUA, ROOT, SITES_LUA, after, file, rendered, state


def test_the_first_time() -> None:
    """The text has a line for each new file, a diff of slurm.conf, and the next steps."""
    lines = list(show.text(install(state(), rendered()), ROOT))
    assert f"make      {ROOT}/hooks/prolog  (root 0755)" in lines
    assert f"make      {ROOT}/slurm_plugin.pyz  (root 0644, 4 bytes)" in lines
    assert "make      /var/spool/slurm_plugin  (64030:64030 0700)" in lines
    assert f"kept      {CONF}.before-slurm_plugin  slurm.conf as it is now" in lines
    assert f"  +Prolog={ROOT}/hooks/prolog" in lines
    assert lines[-1] == "then      run: scontrol reconfigure"


def test_an_upgrade() -> None:
    """The text has the changes of each file; the previous version is one line."""
    before = after(state(), install(state(), rendered(1)))
    lines = list(show.text(install(before, rendered(2)), ROOT))
    assert lines[0] == f"change    {ROOT}/slurm_plugin.pyz  (4 bytes)"
    assert lines[lines.index("  -# 1") : lines.index("  -# 1") + 2] == ["  -# 1", "  +# 2"]
    assert sum(".previous" in line for line in lines) == 1
    assert not any("UNFINISHED" in line for line in lines)


def test_a_script_of_the_sites() -> None:
    """A moved script is shown without a diff."""
    plan = install(state("JobSubmitPlugins=lua\n", {LUA: SITES_LUA}), rendered())
    lines = [
        line for line in show.text(plan, ROOT) if "/etc/slurm/job_submit" in line or SITES_LUA.content.decode() in line
    ]  # type: ignore[union-attr]
    assert lines == [
        "make      /etc/slurm/job_submit.site.lua  (the site's own job_submit.lua, unchanged, 64030:64030 0640)",
        "change    /etc/slurm/job_submit.lua  (calls job_submit.site.lua first, then ours, root 0644)",
    ]


def test_what_is_in_the_way() -> None:
    """Edits by hand come before the next steps."""
    plan = Plan(by_hand=("slurm.conf, line 1",), notices=("run: a",))
    assert list(show.text(plan, ROOT)) == ["by hand   slurm.conf, line 1", "then      run: a"]


def test_for_programs() -> None:
    """The JSON has actions, owners and diffs."""
    changes = (
        Change("/a", None, Entry(None, 0o755)),
        Change("/b", file("1\n"), file("2\n")),
        Change("/c", file(""), None),
    )
    found = show.value(Plan(changes, ("n",), ("h",)))
    assert [(change["path"], change["action"], change["mode"]) for change in found["changes"]] == [
        ("/a", "make", "0755"), ("/b", "change", "0644"), ("/c", "remove", None),
    ]  # fmt: skip
    assert found["changes"][1]["diff"] == "--- /b\n+++ /b\n@@ -1 +1 @@\n-1\n+2\n"
    assert (found["notices"], found["by_hand"]) == (["n"], ["h"])
