"""The reason next to a line that says no more than that a program stopped."""

from pathlib import Path

import pytest

from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import of_files

FOAM = "[0] \n[1] \n[1] --> FOAM FATAL ERROR: (openfoam-2206)\n[0] other\n[1] Maximum number of iterations exceeded\n"
GROMACS = "MPI rank:    0 (out of 10)\n\nFatal error:\nThere is no domain decomposition for 10 ranks\n"
ABORT = "Abort(0) on node 0 (rank 0 in comm 496): application called MPI_Abort(comm=0x84000002, 0) - process 0\n"
OPEN_MPI = f"{'-' * 74}\nMPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n"
MPT = "3:MPT ERROR: Rank 3(g:3) is aborting with error code 1.\n"


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        (FOAM, "[1] Maximum number of iterations exceeded"),
        ("--> FOAM FATAL ERROR: \n\nnot implemented\n", "not implemented"),
        ("--> FOAM FATAL ERROR: \n", "--> FOAM FATAL ERROR: "),
        (
            "terminate called after throwing an instance of 'E'\n  what():  unknown filter\n",
            "  what():  unknown filter",
        ),
        (GROMACS, "There is no domain decomposition for 10 ranks"),
        ("Fatal error:\n" + "-" * 40 + "\n", "Fatal error:"),
        (f"   0: ABORT: MISC: # of open nodes(1)\n{ABORT}", "ABORT: MISC: # of open nodes(1)"),
        (f"1: ERROR: of another rank\n{ABORT}", ABORT.strip()),
        ("ERROR: too far above\n" + "step\n" * 6 + ABORT, ABORT.strip()),
        (f"error: 0.25\n{ABORT}", ABORT.strip()),  # a measure
        (f" ERROR: ran out of levels\n{OPEN_MPI}", " ERROR: ran out of levels"),
        (f"FATAL from PE 3: no such field\n{MPT}", "FATAL from PE 3: no such field"),
    ],
)
def test_the_evidence(text: str, evidence: str, tmp_path: Path) -> None:
    """It is the line with the reason, of the same rank, with its own number; the class stays as it is."""
    log = tmp_path / "job.out"
    log.write_text(f"step 1\n{text}")
    cause = of_files([log], library.load()).cause
    assert cause.failure == ("segfault" if "terminate" in text else "user_code")
    assert cause.event is not None
    assert cause.event.text == evidence
    assert evidence.strip() in log.read_text().splitlines()[cause.event.number - 1]
