"""Helper that calls the command line in this process."""

from __future__ import annotations

import pytest

from locpmap.cli import main


class Run:
    """The output and status of one call of the command."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        with pytest.raises(SystemExit) as exit:
            main([str(argument) for argument in arguments])
        self.status = exit.value.code
        self.out, self.err = capsys.readouterr()

    def check_refusal(self, *parts: str) -> None:
        assert self.status == 2, self.err
        assert self.out == ""
        assert self.err.startswith("locpmap: ")
        assert self.err.count("\n") == 1
        for part in parts:
            assert part in self.err
