"""``chmnet serve`` as a person starts it."""

import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chmnet.cli import serve
from chmnet.cli.main import app, main
from chmnet.errors import InputError
from chmnet.web.server import announce, listen
from chmnet.web.settings import Settings

from .test_cli import assert_one_sentence


def test_help_has_examples() -> None:
    assert "Example" in CliRunner().invoke(app, ["serve", "--help"]).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--examples", "no-such-folder"], "there is no folder no-such-folder"),
        (["--model", "none.safetensors"], "there is no model file none.safetensors"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["chmnet", "serve", *arguments])
    with pytest.raises(SystemExit) as ending:
        main()
    assert_one_sentence(ending.value.code, capsys.readouterr().err, words)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'chmnet\[web\]'"):
        serve.serve()


def test_a_port_that_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(InputError, match="choose another --port"):
            listen("127.0.0.1", other.getsockname()[1])
    with pytest.raises(InputError, match="cannot listen on nowhere"):
        listen("nowhere.invalid", 0)


@pytest.mark.parametrize(("display", "opened"), [(":0", ["http://127.0.0.1:8000/"]), ("", [])])
def test_the_browser_opens_where_there_is_one(
    display: str, opened: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[str] = []
    monkeypatch.setattr("webbrowser.open", found.append)
    monkeypatch.setattr("threading.Thread.start", lambda thread: thread.run())
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    announce("127.0.0.1", 8000, browser=True)
    announce("127.0.0.1", 8001, browser=False)
    assert found == opened
    assert "open http://127.0.0.1:8000/" in capsys.readouterr().out


def test_options_reach_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[tuple[Settings, int, bool]] = []
    monkeypatch.setattr("chmnet.web.server.run", lambda *wishes: started.append(wishes))
    monkeypatch.setattr("logging.basicConfig", lambda **options: None)
    file = tmp_path / "cats.safetensors"
    file.write_bytes(b"")
    command = ["serve", "--port", "0", "--queue", "3", "--session-minutes", "2", "--model", str(file)]
    result = CliRunner().invoke(
        app, [*command, "--no-browser", "--examples", str(tmp_path), "--allow-host", "lab.example"]
    )
    assert result.exit_code == 0, result.output
    settings, port, browser = started[0]
    assert (port, browser) == (0, False)
    assert settings.models == {"cats": file}
    assert settings.examples == tmp_path
    assert settings.allowed_hosts == ("lab.example",)
    assert (settings.limits.queue, settings.limits.session_seconds) == (3, 120)
