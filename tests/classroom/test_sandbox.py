"""Test what a sandbox hides, what it makes read-only, and whether all its processes end."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from transformer_lab.classroom import kernel_process, sandbox
from transformer_lab.classroom.sandbox import Sandbox, SandboxError, command, why_no_sandbox

needs_sandbox = pytest.mark.skipif(bool(why_no_sandbox()), reason=why_no_sandbox() or "there is one")
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folders(tmp_path):
    folders = tmp_path / "package", tmp_path / "sockets"
    for folder in folders:
        folder.mkdir()
    (tmp_path / "package" / "seen").write_text("the package")
    (tmp_path / "results").write_text("of another student")
    return folders


@pytest.fixture
def inside(folders):
    """Return a function that runs a shell script in a sandbox and returns its output."""

    def run(script: str) -> str:
        asked = [*command(*folders), "--", "sh", "-c", script]
        return subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False).stdout

    return run


@needs_sandbox
def test_neither_the_checkout_nor_homes_nor_other_students_are_there(inside, folders):
    hidden = [CHECKOUT / "solutions", CHECKOUT / "transformer_lab", CHECKOUT / ".git", folders[0].parent / "results"]
    hidden += [Path("/home"), Path("/etc/shadow"), Path("/sys"), Path("/var"), Path.home() / ".cache"]
    script = "; ".join(f"test -e '{path}' && echo {path}" for path in hidden)
    assert inside(f"{script}; echo end") == "end\n"


@needs_sandbox
def test_of_run_only_the_sockets_of_the_kernel_are_there(inside):
    assert inside("ls /run") == "kernel\n"


@needs_sandbox
def test_the_package_and_the_environment_can_be_read(inside, folders):
    assert inside(f"cat {folders[0]}/seen; ls -d {sys.prefix}") == f"the package{sys.prefix}\n"


@needs_sandbox
def test_nothing_but_small_memory_can_be_written(inside, folders):
    places = ["/", "/usr", "/etc", "/dev", "/run", "/run/kernel", sys.prefix, str(folders[0]), "/proc/sys/kernel"]
    script = "; ".join(f"(: > {place}/x) 2>/dev/null && echo {place}" for place in places)
    assert inside(f"{script}; echo end") == "end\n"
    for place, size in (("/tmp", sandbox.TMP_BYTES), ("/dev/shm", sandbox.SHM_BYTES)):
        if "--size" in command(*folders):
            assert inside(f"stat -f -c '%b %S' {place}") == f"{size // 4096} 4096\n"


@needs_sandbox
def test_there_is_no_network_and_no_other_process(inside):
    assert "00000000" not in inside("cat /proc/net/route")
    assert inside("cat /proc/net/dev | tail -n +3 | cut -d: -f1").split() in ([], ["lo"])
    assert len(inside("ls -d /proc/[0-9]*").split()) <= 4


@needs_sandbox
def test_no_secret_comes_in_by_the_environment(inside, monkeypatch):
    monkeypatch.setenv("SECRET_SEED", "4711")
    assert "4711" not in inside("env")


@needs_sandbox
def test_everything_in_it_ends_with_it(folders):
    made = Sandbox(*folders)
    first = psutil.Process(made.first_process)  # when it ends, the system ends the others
    made.close()
    assert not first.is_running()
    made.close()  # closing it twice is harmless


def test_copies_of_the_answers_among_the_installed_packages_are_hidden(tmp_path):
    installed = tmp_path / "lib" / "python3.11" / "site-packages" / "transformer_lab"
    installed.mkdir(parents=True)
    assert installed in sandbox._with_answers([tmp_path])


def test_a_checkout_inside_of_what_is_bound_is_hidden():
    assert CHECKOUT in sandbox._with_answers([CHECKOUT.parent])
    assert not any(CHECKOUT.is_relative_to(folder) for folder in sandbox._with_answers([Path("/usr")]))


def test_without_bubblewrap_there_is_a_reason(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    why_no_sandbox.cache_clear()
    try:
        assert "apt install bubblewrap" in why_no_sandbox()
    finally:
        monkeypatch.undo()
        why_no_sandbox.cache_clear()


def test_a_machine_without_a_filter_makes_no_sandbox(folders, monkeypatch):
    """The filter knows the system calls of two architectures. Elsewhere, it used to allow every call."""
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    with pytest.raises(SandboxError, match="`riscv64`, and the seccomp filter exists only for x86-64 and arm64"):
        Sandbox(*folders)


def test_bubblewrap_that_may_not_make_namespaces_says_so(folders, tmp_path, monkeypatch):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(SandboxError, match="No permissions"):
        Sandbox(*folders)


ENTERED = """
import ctypes, json, os, resource, sys  # everything that is needed inside, where our Python may be unreadable
from pathlib import Path
from transformer_lab.classroom import kernel_process, sandbox
package, sockets, as_nobody = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "nobody"
if as_nobody:
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
    sys.prefix = sys.base_prefix = "/usr"  # this user may be unable to read ours
os.umask(0o077)
made = sandbox.Sandbox(package, sockets)
reading, writing = os.pipe()
if os.fork() == 0:
    kernel_process._enter(made.first_process)
    kernel = os.fork()
    if kernel == 0:
        kernel_process._limit_resources({"sandbox": 1, "limits": {"FSIZE": 10**6, "DATA": 2**30, "NPROC": 20}})
        kernel_process._give_up_privileges(10**9 if os.geteuid() == 0 else None)
        def status(number):
            return dict(line.split(":", 1) for line in Path(f"/proc/{number}/status").read_text().splitlines())
        def can_be_written(number):
            try:
                os.close(os.open(f"/proc/{number}/mem", os.O_RDWR))
            except OSError:
                return False
            return True
        numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        found = {"pid": os.getpid(), "user": os.getuid(), "rights": int(status("self")["CapEff"], 16),
            "root": os.listdir("/"), "unshare": ctypes.CDLL(None).unshare(0x10000000),
            "filters": {number: int(status(number)["Seccomp"]) for number in numbers},
            "writable": [number for number in numbers if can_be_written(number) and number != os.getpid()]}
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os._exit(os.waitpid(kernel, 0)[1])
os.close(writing)
os.wait()
print(os.read(reading, 10000).decode())
made.close()
"""


@pytest.fixture(params=["ourselves", "nobody"])
def entered(request):
    """Return what an unprivileged process sees in a sandbox created by the current user or by an ordinary user."""
    if request.param == "nobody" and os.geteuid() != 0:
        pytest.skip("only root can become another user; this one is ordinary already")
    with tempfile.TemporaryDirectory(prefix="tl-") as made:  # only its owner can read the folder that pytest creates
        folder = Path(made)
        folder.chmod(0o755)
        for name in ("package", "sockets"):
            (folder / name).mkdir()
            (folder / name).chmod(0o755)
        asked = [sys.executable, "-c", ENTERED, str(folder / "package"), str(folder / "sockets"), request.param]
        ran = subprocess.run(asked, capture_output=True, text=True, timeout=60, cwd="/", check=False)
    if request.param == "nobody" and ("Permission denied" in ran.stderr or "No permissions" in ran.stderr):
        pytest.skip("users may not make namespaces here")
    return json.loads(ran.stdout)


@needs_sandbox
def test_root_and_ordinary_users_can_enter_a_sandbox(entered):
    """An ordinary user's namespaces belong to a user namespace. That namespace must be entered first."""
    assert entered["pid"] > 1
    assert entered["rights"] == 0
    assert entered["unshare"] == -1
    assert "home" not in entered["root"]


@needs_sandbox
def test_every_process_in_it_has_the_filter(entered):
    """An ordinary user can write to the memory of bubblewrap's processes but must not gain system calls that way."""
    assert len(entered["filters"]) >= 2  # the first process and the process that entered
    assert set(entered["filters"].values()) == {2}
    if entered["user"] == 10**9:  # the processes belong to root, a different user
        assert entered["writable"] == []


@needs_sandbox
def test_bubblewrap_takes_the_filter(folders):
    code = "import os\ntry: os.memfd_create('x')\nexcept PermissionError: print('refused')"
    with tempfile.TemporaryFile() as program:
        program.write(kernel_process.seccomp_filter())
        program.seek(0)
        given = program.fileno()
        asked = [*command(*folders), "--seccomp", str(given), "--", sys.executable, "-c", code]
        ran = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False, pass_fds=[given])
    assert ran.stdout == "refused\n"


@needs_sandbox
def test_a_bubblewrap_without_the_filter_makes_no_sandbox(folders, tmp_path, monkeypatch):
    """Some versions of bubblewrap do not apply the filter to their first process."""
    fake = tmp_path / "bwrap"
    fake.write_text(
        f'#!/bin/bash\nargs=("$@")\nfor i in "${{!args[@]}}"; do\n'
        '  [[ "${args[i]}" == --seccomp ]] && unset "args[i]" "args[i+1]"\ndone\n'
        f'exec {shutil.which("bwrap")} "${{args[@]}}"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(SandboxError, match="filter"):
        Sandbox(*folders)
