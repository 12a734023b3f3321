"""The compiled kernels' own tests under the sanitizers: no bad address, no race between threads."""

import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address", "thread", "undefined"])
def test_sanitizers_find_nothing(tmp_path: Path, sanitizer: str) -> None:
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        pytest.skip("needs cmake and a C++ compiler")
    for command in (
        ["cmake", "-S", str(NATIVE), "-B", str(tmp_path), f"-DCHMNET_SANITIZER={sanitizer}"],
        ["cmake", "--build", str(tmp_path)],
        [str(tmp_path / "check")],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failures" in done.stdout
    assert "runtime error" not in done.stderr  # how the sanitizer of undefined behaviour reports
