"""Mirrors slurm_plugin/launch/__init__.py and base.py: properties of every mode."""

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.launch import MODES, Launch, Options, Place, Shape
from slurm_plugin.templates import templates_directory
from tests.unit.launch.test_mpi import PLACE

SHAPES = [Shape(4, 8), Shape(2, 1, "task", root=True), Shape(1, 4, options=Options(ps=1, table=False))]


@given(
    st.lists(st.text(alphabet=st.characters(exclude_characters="\0"), min_size=1), min_size=1, max_size=5),
    st.sampled_from(sorted(set(MODES) - {"deepspeed"})),
    st.sampled_from(SHAPES),
)
def test_the_users_words_stay_whole_and_in_order(words: list[str], mode: str, shape: Shape) -> None:
    """Whatever is added before them, the words after the executable end the launch unchanged."""
    launched = MODES[mode].launch(tuple(words), shape).argv
    assert launched[len(launched) - len(words) :] == tuple(words)


def test_no_text_of_the_user_is_in_a_note() -> None:
    """A note becomes a comment of the script, which a newline would end."""
    for shape in SHAPES:
        word = "python\nXYZ"
        for mode in MODES.values():
            for words in ((word,), ("python", word), ("mpirun", word), ("deepspeed", word)):
                note = mode.launch(words, shape).note
                assert "XYZ" not in note, shape
                assert "\n" not in note, shape


@given(st.lists(st.text(min_size=1), min_size=1))
def test_a_launch_is_shown_as_one_line(words: list[str]) -> None:
    """It is in a comment and in the log: no word may end the line, or fill the log."""
    shown = Launch(tuple(words), "").shown
    assert shown.isprintable()
    assert len(shown) <= 2003


def test_of_a_word_with_lines_the_first_is_shown() -> None:
    """Such as a script for bash."""
    assert Launch(("bash", "-c", "a\nb", "x" * 3000), "").shown.startswith("bash -c 'a ...' xxx")


def test_each_mode_has_a_template() -> None:
    """One file for each mode. `base` and `mpi` are shared."""
    found = {path.name.partition(".")[0] for path in (templates_directory() / "job").iterdir()}
    assert found - {"base", "mpi"} == set(MODES)


def test_single_and_script_put_nothing_before_the_command() -> None:
    """The launch is the command."""
    for mode in ("single", "script"):
        assert MODES[mode].launch(("./a.out", "mpirun"), Shape(1, 4)).argv == ("./a.out", "mpirun")
    assert MODES["single"].files(PLACE) == MODES["single"].variables(PLACE) == {}


def test_a_script_is_told_everything_that_is_the_same_on_all_nodes() -> None:
    """Both hostfiles and the rendezvous, but not RANK, which differs."""
    script = MODES["script"]
    assert script.files(PLACE) == {"hostfile": "n1 slots=2\nn2 slots=4\n", "hostfile.mpich": "n1:2\nn2:4\n"}
    there = Place(PLACE.allocation, 61000, "/d", interface="eth0")
    assert script.defaults(there) == {"HYDRA_IFACE": "eth0"}
    assert script.variables(there) == {
        "OMPI_MCA_orte_default_hostfile": "/d/hostfile",
        "PRTE_MCA_prte_default_hostfile": "/d/hostfile",
        "HYDRA_HOST_FILE": "/d/hostfile.mpich",
        "MASTER_ADDR": "n1",
        "MASTER_PORT": "61000",
        "WORLD_SIZE": "2",
        "SLOTS": "2",
    }
