"""Mirrors slurm_plugin/spec/sbatch_flags.py: flags of sbatch without a key of a spec."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_plugin.records.token import MAX_COMMENT_BYTES, Had, Mark, Token, update
from slurm_plugin.slurm import parse
from slurm_plugin.spec import Spec, load, sbatch_flags
from tests.unit.spec.small import SMALL, unplaced

HELP = parse.sbatch_flags((Path(__file__).parents[2] / "captured" / "sbatch-help-22.05.txt").read_text())


def known(names: Sequence[str]) -> Mapping[str, str]:
    """Return the flags of sbatch 22.05."""
    return HELP


def problems(text: str, asked: sbatch_flags.Known | None = known) -> list[str]:
    """Return the problems of these flags."""
    return unplaced(f"{SMALL}sbatch: {text}\n", known=asked)


REFUSED = {
    "{contigous: yes}": "sbatch.contigous: this machine's sbatch has no --contigous; did you mean contiguous?; see:"
    " sbatch --help",
    "{zzz: 1}": "sbatch.zzz: this machine's sbatch has no --zzz; see: sbatch --help",
    "{--switches: 1}": "sbatch.--switches: accepted: the long name of a flag, without `--` before it; did you mean"
    " switches?",
    "{core_spec: 1}": "sbatch.core_spec: accepted: the long name of a flag, without `--` before it; did you mean"
    " core-spec?",
    "{mem: 4G}": "sbatch.mem: the key `memory` sets it; give that instead",
    "{requeue: yes}": "sbatch.requeue: the key `retries` sets it; give that instead",
    "{reque: yes}": "sbatch.reque: this machine's sbatch has no --reque; did you mean requeue?; see: sbatch --help",
    "{open-mode: truncate}": "sbatch.open-mode: the key `open_mode` sets it; give that instead",
    "{wrap: x}": "sbatch.wrap: not passed through: the script is made from this spec; `command` is what it runs",
    "{contiguous: 1}": "sbatch.contiguous: found '1'; accepted: yes, as it has no value; or leave it out",
    "{contiguous: }": "sbatch.contiguous: found nothing; accepted: yes",
    "{switches: yes}": "sbatch.switches: found 'yes'; accepted: a value, see: sbatch --help",
    '{wckey: "a\\n#SBATCH --uid=0"}': "sbatch.wckey: found 'a\\n#SBATCH --uid=0'; accepted: no control characters,"
    " backslashes or double quotes, which sbatch cannot read from a script",
    "{gres: 'nvme:1,gpu:2'}": "sbatch.gres: found 'gpu:2'; the key `accelerators` sets it; other resources"
    " are accepted",
    "{distribution: 'Arbitrary,nopack'}": "sbatch.distribution: found 'Arbitrary,nopack'; accepted: block, cyclic or"
    " plane=N, because `arbitrary` is an order that only your own hostfile has",
    "{comment: '[sp1;retries=9]'}": "sbatch.comment: found '[sp1;retries=9]'; accepted: up to 823 bytes without"
    " `[sp1;`: slurm_plugin's token follows them",
    "[--contiguous]": "sbatch: found a list; accepted: a mapping of `flag: value` lines, such as `switches: 1`; `yes`"
    " for a flag without a value",
}


def test_a_flag_that_is_not_passed_through_says_why() -> None:
    """With the key, the nearest flag, or the accepted value."""
    for text, wanted in REFUSED.items():
        assert problems(text) == [wanted], text


def test_several_are_told_at_once_with_the_other_keys() -> None:
    """In one message."""
    assert len(problems("{mem: 1, zzz: 1, wrap: x}\narray: 0-3\noutput: x")) == 4


def test_without_an_sbatch_only_what_we_know_is_refused() -> None:
    """A script may be rendered anywhere. The form of the name is still checked."""
    assert problems("{mem: 1, 'a b': 1}", asked=None) == [
        "sbatch.mem: the key `memory` sets it; give that instead",
        "sbatch.a b: accepted: the long name of a flag, without `--` before it",
    ]
    assert spec("{zzz: 1}", None).sbatch == {"zzz": "1"}
    assert spec("{zzz: 1}", lambda _: None).sbatch == {"zzz": "1"}


def spec(text: str, asked: sbatch_flags.Known | None = known) -> Spec:
    return load(f"{SMALL}sbatch: {text}\n".encode(), "a", known=asked)


def test_sbatch_is_asked_only_where_there_is_something_to_ask() -> None:
    """Only about flags that may be passed through; not at all if there are none."""
    names: list[Sequence[str]] = []

    def asked(of: Sequence[str]) -> Mapping[str, str]:
        names.append(of)
        return HELP

    load(SMALL.encode(), "a", known=asked)
    assert names == []
    spec("{switches: 1, contiguous: yes}", asked)
    assert names == [["switches", "contiguous"]]


def test_what_a_key_says_is_a_flag_of_every_release_or_none() -> None:
    """The table has no misspelt flag, and no unknown key."""
    everywhere = set(HELP) | {"ntasks-per-gpu", "ntasks-per-tres", "open-mode", "tasks-per-node"}  # not in the help
    assert set(sbatch_flags.KEY_OF) <= everywhere
    assert set(sbatch_flags.KEY_OF.values()) <= set(Spec.__struct_fields__)


def test_a_comment_leaves_room_for_everything_we_write_there() -> None:
    """For the longest comment, with the longest token and mark after it."""
    text = "ü" * (sbatch_flags.MOST_COMMENT_BYTES // 2) + "x"
    own = sbatch_flags.comment(spec(f"{{comment: {text}}}").sbatch, str(Token(128, "auto", queue_timeout_s=999_999)))
    assert own.startswith(f"{text} [sp1;")
    longest = update(own, had=Had(999, 65536), mark=Mark(999, tuple(range(999))))
    assert len(longest.encode()) <= MAX_COMMENT_BYTES
    assert longest.count(",") > 30
    assert problems(f"{{comment: {text}x}}")[0].startswith("sbatch.comment: found")
