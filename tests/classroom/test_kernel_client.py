"""Test kernels from outside: how they end, what limits apply, and what malformed or forged messages do."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from queue import Empty
from textwrap import dedent

import psutil
import pytest
import torch

from transformer_lab.classroom import kernel_client
from transformer_lab.classroom.kernel_client import Kernel, KernelEnded
from transformer_lab.classroom.messages import DELIMITER, checked_output, clean_text, is_idle, parse
from transformer_lab.classroom.resource_limits import Limits
from transformer_lab.classroom.sandbox import ETC, why_no_sandbox
from transformer_lab.classroom.stubbed_package import write_stubbed_package

LONG = 60.0  # seconds; no test waits that long
CUDA_BYTES = 300 * 2**20 if torch.version.cuda else 0  # extra memory that a CUDA build takes before anything runs
QUIET = "import warnings; warnings.simplefilter('ignore')\n"  # since Python 3.12, forking a threaded process warns
needs_sandbox = pytest.mark.skipif(bool(why_no_sandbox()), reason=why_no_sandbox() or "there is one")


@pytest.fixture(scope="module")
def package():
    """Return the folder of a stubbed package."""
    with tempfile.TemporaryDirectory(prefix="tl-", dir="/tmp") as made:
        write_stubbed_package(Path(made) / "p", ["01_attention"])
        yield Path(made) / "p"


@pytest.fixture
def kernel_with(package):
    """Return a function that starts kernels with the given limits, in a sandbox if possible."""
    started = []

    def start(sandboxed: bool = not why_no_sandbox(), seconds: float = LONG, **limits: int) -> Kernel:
        folder = Path(tempfile.mkdtemp(dir=package.parent))
        started.append(Kernel(package, folder / "k", Limits(**limits), seconds, sandboxed))
        return started[-1]

    yield start
    for kernel in started:
        kernel.stop()


def run(kernel: Kernel, code: str, seconds: float = LONG) -> list[tuple[str, dict]]:
    """Run a cell, and return its outputs."""
    request = kernel.execute_cell_input(code)
    kernel.await_reply(request, seconds)
    return shown(kernel)


def shown(kernel: Kernel) -> list[tuple[str, dict]]:
    outputs = []
    while not is_idle(message := kernel.get_message()):
        outputs.append((message["msg_type"], message["content"]))
    return outputs


def printed(kernel: Kernel, code: str) -> str:
    return "".join(content.get("text", str(content)) for _, content in run(kernel, code))


def test_cells_share_their_names_and_show_results_and_errors(kernel_with):
    kernel = kernel_with()
    assert run(kernel, "x = 20 + 1") == []
    (kind, content), *_ = run(kernel, "x * 2")
    assert (kind, content["data"]) == ("execute_result", {"text/plain": "42"})
    (kind, content), *_ = run(kernel, "1 / 0")
    assert (kind, content["ename"]) == ("error", "ZeroDivisionError")


def test_a_new_kernel_knows_nothing_of_the_one_before(kernel_with):
    first = kernel_with()
    run(first, "secret = 1; open('/tmp/left_behind', 'w').write('x')")
    first.stop()
    second = kernel_with()
    assert run(second, "secret")[-1][1]["ename"] == "NameError"
    if second.sandbox is not None:
        assert "left_behind" not in printed(second, "import os; print(os.listdir('/tmp'))")
    else:
        Path("/tmp/left_behind").unlink()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import os; os._exit(3)", "status 3"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_the_end_of_a_kernel_is_noticed_at_once(kernel_with, code, says):
    """The grader does not wait for the cell's time limit after a kernel has ended."""
    kernel = kernel_with()
    with pytest.raises(KernelEnded, match=says):
        run(kernel, code)
    assert not kernel.is_alive()


@needs_sandbox
def test_the_end_of_a_supervisor_is_reported_with_its_signal(kernel_with):
    """The system may kill the supervisor when memory runs out. The report used to say "status -9"."""
    kernel = kernel_with()
    os.kill(kernel.group.supervisor, signal.SIGKILL)
    with pytest.raises(KernelEnded, match="was ended by SIGKILL"):
        run(kernel, "import time; time.sleep(60)")


def test_a_kernel_that_does_not_answer_is_reported_before_its_first_cell(kernel_with, monkeypatch):
    """Otherwise, its first cell would be blamed, or would lose its output."""
    monkeypatch.setattr(kernel_client, "START_SECONDS", 0.0)
    with pytest.raises(KernelEnded, match="did not answer"):
        kernel_with()


def test_a_kernel_does_not_get_the_graders_environment(monkeypatch):
    """Processes started there show their first environment in /proc, even after they have cleared it."""
    monkeypatch.setenv("SECRET_TOKEN", "4711")
    main = sys.modules["__main__"]
    with kernel_client._stripped_process():
        seen = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
        assert sys.modules["__main__"] is not main
    assert "PATH=" in seen
    assert "4711" not in seen
    assert os.environ["SECRET_TOKEN"] == "4711"
    assert sys.modules["__main__"] is main


def test_exit_at_the_end_of_a_cell_ends_nothing(kernel_with):
    kernel = kernel_with()
    run(kernel, "exit()")
    assert "still there" in printed(kernel, "import time; time.sleep(0.3); print('still there')")


def test_a_cell_without_end_is_interrupted_and_the_kernel_lives_on(kernel_with):
    kernel = kernel_with()
    request = kernel.execute_cell_input("x = 1\nwhile True: pass")
    with pytest.raises(Empty):
        kernel.await_reply(request, 0.3)
    kernel.interrupt()
    assert shown(kernel)[-1][1]["ename"] == "KeyboardInterrupt"
    assert printed(kernel, "print(x)") == "1\n"


def test_a_kernel_whose_time_is_up_is_ended(kernel_with):
    """A kernel is stopped on time even while the grader is waiting for something else."""
    with pytest.raises(KernelEnded) as ended:
        run(kernel_with(seconds=1.0), "import time; time.sleep(100)")
    assert ended.value.reason == "time"


@needs_sandbox
def test_files_in_memory_count_as_memory(kernel_with):
    """Files and mapped pages count together. Neither would exceed the limit on its own."""
    kernel = kernel_with(memory=430 * 2**20 + CUDA_BYTES)
    code = (
        "import mmap, time\npages = mmap.mmap(-1, 100_000_000)\nfor _ in range(100): pages.write(b'1' * 1_000_000)\n"
        "for name in ('/tmp/1', '/tmp/2', '/tmp/3', '/tmp/4', '/dev/shm/5'):\n"
        "  with open(name, 'wb') as file:\n    for _ in range(60): file.write(b'1' * 1_000_000)\ntime.sleep(99)"
    )
    with pytest.raises(KernelEnded) as ended:
        run(kernel, code)
    assert ended.value.reason == "memory"


@needs_sandbox
@pytest.mark.parametrize(
    "code",
    [
        "import mmap\nkept = []\nfor _ in range(12):\n  kept.append(mmap.mmap(-1, 100 * 2**20)); kept[-1].madvise(23)",
        "import os, socket\nkept = []\nfor _ in range(3): os.fork()\n"
        "for _ in range(200):\n  a, b = socket.socketpair(); a.setblocking(False)\n"
        "  try:\n    while True: a.send(bytes(32768))\n  except BlockingIOError: kept.append((a, b))",
        "import os\nos.mkdir('/tmp/many')\nfor number in range(500_000):\n"
        "  os.close(os.open(f'/tmp/many/{number:0200}', os.O_CREAT))",
    ],
    ids=["shared pages", "sockets", "empty files"],
)
def test_memory_that_no_process_owns_counts_as_well(kernel_with, code):
    """Memory without an owner includes shared pages (filled by `madvise` 23), socket buffers, and directory entries."""
    kernel = kernel_with(memory=330 * 2**20 + CUDA_BYTES)
    assert printed(kernel, "import time; time.sleep(0.3); print('lives')") == "lives\n"
    with pytest.raises(KernelEnded) as ended:
        run(kernel, f"{code}\ntime.sleep(99)")
    assert ended.value.reason == "memory"


@needs_sandbox
def test_the_settings_of_the_system_can_be_read(kernel_with):
    """If root runs the grader, the kernel runs as another user, but its libraries must still be able to read /etc."""
    given = [f"/etc/{name}" for name in ETC if os.path.isfile(f"/etc/{name}")]
    code = f"import os\nprint(*os.listdir('/etc'), *os.listdir('/etc/ssl'))\nfor name in {given}: open(name).close()"
    assert {os.path.basename(name) for name in given} <= set(printed(kernel_with(), code).split())


@needs_sandbox
def test_what_forked_processes_share_counts_once(kernel_with):
    """Together, forty idle processes map about nine gibibytes, but they share almost all of that memory."""
    code = "import os, time\nfor _ in range(40):\n  if os.fork() == 0: time.sleep(99)\ntime.sleep(1)\nprint('lives')"
    assert printed(kernel_with(), QUIET + code) == "lives\n"


def test_one_process_cannot_take_more_memory_than_all_may(kernel_with):
    shown = run(kernel_with(memory=600 * 2**20 + CUDA_BYTES), "x = bytearray(900_000_000)")
    assert shown[-1][1]["ename"] == "MemoryError"


@needs_sandbox
def test_forks_without_end_are_refused(kernel_with):
    code = (
        QUIET + "import os, time\nn = 0\ntry:\n  while n < 500:\n    if os.fork() == 0: time.sleep(99)\n    n += 1\n"
        "except OSError: print('refused')"
    )
    try:
        outcome = printed(kernel_with(processes=40), code)
    except KernelEnded as ended:  # the grader counted the processes first
        outcome = ended.reason
    assert outcome in ("refused\n", "processes")


@needs_sandbox
def test_detached_processes_end_with_the_kernel(kernel_with):
    kernel = kernel_with()
    first, supervisor = map(psutil.Process, (kernel.sandbox.first_process, kernel.group.supervisor))
    code = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(999)\n  os._exit(0)"
    run(kernel, f"{code}\nos.wait()")
    (detached,), (main,) = first.children(), supervisor.children()
    kernel.stop()
    assert not any(process.is_running() for process in (first, detached, supervisor, main))


@needs_sandbox
def test_the_kernel_has_no_rights(kernel_with):
    code = """
        import ctypes, json, os, socket
        status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
        libc = ctypes.CDLL(None)
        def fails(call):
            try: return call() == -1
            except OSError: return True
        print(json.dumps({
            "root": os.getuid() == 0, "rights": int(status["CapEff"], 16) | int(status["CapBnd"], 16),
            "new": int(status["NoNewPrivs"]), "processes": len(list(filter(str.isdigit, os.listdir("/proc")))) < 8,
            "refused": [fails(call) for call in (
                lambda: os.memfd_create("x"), lambda: libc.shmget(0, 4096, 0o1600), lambda: libc.msgget(0, 0o1600),
                lambda: libc.unshare(0x10000000), lambda: libc.syscall(56, 0x10000011, 0, 0, 0, 0),
                lambda: libc.syscall(425, 8, 0), lambda: libc.syscall(323, 0), lambda: libc.syscall(250, 0, -3, 0),
                lambda: libc.mount(b"x", b"/tmp", b"tmpfs", 0, 0), lambda: libc.setns(3, 0),
                lambda: socket.create_connection(("1.1.1.1", 80), 1), lambda: open("/run/kernel/x", "w"),
                lambda: os.kill(1, 9))],
        }))
    """
    found = json.loads(printed(kernel_with(), dedent(code)))
    kill_is_refused = os.geteuid() == 0  # ordinary users may signal their own processes; the first process is immune
    assert found.pop("refused")[: 12 + kill_is_refused] == [True] * (12 + kill_is_refused)
    assert found == {"root": False, "rights": 0, "new": 1, "processes": True}


@needs_sandbox
def test_nothing_of_the_answers_lies_where_a_kernel_can_read(kernel_with):
    code = """
        import os
        for top in ("/", "/dev/shm", "/tmp"):
            for folder, folders, files in os.walk(top):
                folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/usr", "/sys")]
                for name in files + folders:
                    if name in ("solutions", "notebook_01_attention.py", "01_attention.ipynb", ".git", "judgment.py"):
                        print(os.path.join(folder, name))
    """
    assert printed(kernel_with(), dedent(code)) == ""


# Floods and lies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "for _ in range(300): print('x' * 100_000)",
        "print('x' * 20_000_000)",
        "from IPython.display import HTML, display\nfor _ in range(2000): display(HTML('x' * 5000))",
        "from IPython.display import HTML, display\ndisplay(HTML('x' * 30_000_000))",
        "import sys\nfor _ in range(3000): print('x'); sys.stdout.flush()",
    ],
    ids=["many texts", "one text", "many displays", "one display", "many messages"],
)
def test_floods_of_output_are_read_and_forgotten(kernel_with, code, monkeypatch):
    monkeypatch.setattr(kernel_client, "QUIET_SECONDS", 0.5)
    kernel = kernel_with()
    outputs = run(kernel, code)
    assert len(outputs) <= kernel_client.CELL_MESSAGES
    assert sum(len(str(content)) for _, content in outputs) < 2 * kernel_client.CELL_CHARACTERS
    assert printed(kernel, "print(1)") == "1\n"


@pytest.mark.parametrize(
    "text",
    ["print('\ud800')", "x = '\udcff'", "# \x00", "raise ValueError('\\ud800 \\x1b[31m')", ""],
    ids=["lone surrogate", "escaped byte", "null", "in an error", "nothing"],
)
def test_strange_text_in_cells_harms_nobody(kernel_with, text):
    kernel = kernel_with()
    run(kernel, text)
    assert printed(kernel, "print(1)") == "1\n"


def message(kind="stream", content='{"name": "stdout", "text": "x"}', parent='{"msg_id": "1"}', header=None):
    header = json.dumps({"msg_type": kind}) if header is None else header
    return [b"topic", DELIMITER, b"", *(part.encode() for part in (header, parent, "{}", content))]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"x"] * 3,
        [DELIMITER],
        message()[:-1],
        message(parent='{"msg_id": "2"}'),
        message(parent='{"msg_id": ["1"]}'),
        message(parent="[]"),
        message(parent="1" * 5000),
        message(header="null"),
        message(header='{"msg_type": 3}'),
        message(content="[" * 100_000),
        message(content="[]"),
        message(content='"text"'),
        message(content="\x00"),
        message(kind="comm_open"),
        message(kind="status", content='{"execution_state": ["idle"]}'),
        [*message()[:-1], b"\xff\xfe"],
    ],
)
def test_messages_that_are_none_are_passed_over(frames):
    parsed = parse(frames, "1")
    assert parsed is None or checked_output(parsed) is None


@pytest.mark.parametrize(
    ("kind", "content", "checked"),
    [
        ("stream", {"name": [], "text": {}}, {"name": "stdout", "text": ""}),
        ("stream", {"name": "stderr", "text": "\x1b[2Ja\ud800\b"}, {"name": "stderr", "text": "a��"}),
        ("error", {"ename": 1, "traceback": "no list"}, {"ename": "", "evalue": "", "traceback": []}),
        ("error", {"traceback": [1, None, "line"]}, {"ename": "", "evalue": "", "traceback": ["", "", "line"]}),
        ("display_data", {"data": {"text/plain": 3, "a": "b"}}, {"data": {"a": "b"}, "metadata": {}}),
        ("display_data", {"data": [1], "metadata": "x"}, {"data": {}, "metadata": {}}),
        ("execute_result", {"execution_count": "DROP"}, {"data": {}, "metadata": {}, "execution_count": 1}),
    ],
)
def test_of_a_message_only_what_its_kind_has_is_kept(kind, content, checked):
    parsed = parse(message(kind, json.dumps(content)), "1")
    assert checked_output(parsed)["content"] == checked


def test_clean_text_has_nothing_that_a_terminal_obeys():
    assert clean_text("\x1b]0;title\x07\x1b[31mred\x1b[0m\r\x9b1m\u0000") == "red��1m�"
    assert clean_text("x" * 20, 10) == "x" * 10 + " …"
    assert clean_text(b"bytes") == ""


@pytest.mark.skipif(os.name != "posix", reason="it forks")
def test_without_a_sandbox_a_kernel_runs_and_ends_with_its_children(kernel_with):
    """Without a sandbox, as on macOS, the student's code has more access but still leaves no process behind."""
    kernel = kernel_with(sandboxed=False)
    code = (
        "import os, time\nchild = os.fork()\nif child == 0:\n  os.setsid(); time.sleep(999)\nprint(os.getpid(), child)"
    )
    numbers = [int(number) for number in printed(kernel, QUIET + code).split()]
    assert all(map(psutil.pid_exists, numbers))
    kernel.stop()
    assert not any(map(psutil.pid_exists, numbers))
