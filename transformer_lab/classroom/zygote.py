"""The process from which the kernels of submissions are forked: it has imported what notebooks import.

It is started as a file of its own, `python -I -B zygote.py FOLDER`, and never imports the installed package: what it
gives to the kernels is the stubbed one. It runs no code of a submission itself. Its children are, in this order,

    zygote (torch, matplotlib, ipykernel)       one a run; listens on `FOLDER/zygote`
      zygote of a notebook                      has imported its stubbed package; listens on a path of its own
        keeper                                  one a kernel: enters the sandbox's namespaces, watches, kills, reports
          kernel                                in the sandbox, without rights: all of the student's code runs here

Whoever asks for a kernel holds a connection to its keeper. When it closes, the kernel ends.
"""

import array
import contextlib
import ctypes
import errno
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_REQUEST_BYTES = 1 << 16
WATCH_SECONDS = 0.1
BYTES_OF_A_SOCKET = 2 * 212_992  # the most that Linux lets wait in one by default; no process is charged with it
BYTES_OF_AN_ENTRY = 2_048  # of a folder in memory, however empty the file is
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_SECCOMP = 1, 38, 24, 36, 22
NS_GET_USERNS = 0xB701
NAMESPACES = ("mnt", "pid", "net", "ipc", "uts")
OUTPUT_CHARACTERS = 1_000_000  # of what a cell prints; the rest is left out
INSIDE = "/run/kernel"  # where the sandbox has the folder with the kernel's sockets

_libc = ctypes.CDLL(None, use_errno=True)


def main(folder: str) -> None:
    """Import what takes long, then serve requests for zygotes of notebooks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the terminal is for the grader, which ends us
    _die_with_parent()
    _forget_the_installed_package()
    import ipykernel.ipkernel
    import ipykernel.kernelapp  # noqa: F401
    import ipywidgets  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import matplotlib_inline.backend_inline  # noqa: F401
    import seaborn  # noqa: F401
    import torch

    torch.set_num_threads(1)
    torch.ones(2, 2, requires_grad=True).softmax(-1).sum()  # what torch loads when it is first used
    _serve(os.path.join(folder, "zygote"), notebook_zygote)


def notebook_zygote(request: dict[str, Any], files: list[int], connection: socket.socket) -> None:
    """Import the stubbed package in the folder `package`, then serve requests for kernels on `listen`."""
    _die_with_parent()
    package = request["package"]
    sys.path.insert(0, package)
    importlib.invalidate_caches()
    import transformer_lab

    if not str(transformer_lab.__file__).startswith(package):
        raise RuntimeError(f"the kernels would see {transformer_lab.__file__} and not {package}")
    for name in ("transformer_lab.plots", "transformer_lab.exercises", "transformer_lab.model"):
        importlib.import_module(name)
    # By its path, because it belongs to the grader; what it imports is the stubbed package's.
    path = Path(__file__).with_name("observing.py")
    spec = importlib.util.spec_from_file_location("transformer_lab_observing", path)
    observing = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = observing
    spec.loader.exec_module(observing)
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    if threads > 1:
        raise RuntimeError(f"the zygote has {threads} threads: it must not be forked")
    _serve(request["listen"], keeper, lambda: _say(connection, {"ready": True}))


def _forget_the_installed_package() -> None:
    """Take out of the search path whatever would find the package with its answers."""
    plain = ("BuiltinImporter", "FrozenImporter", "PathFinder")
    sys.meta_path[:] = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") in plain]
    sys.path_hooks[:] = [hook for hook in sys.path_hooks if "editable" not in getattr(hook, "__module__", "")]
    own = str(Path(__file__).resolve().parents[2])
    sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != own and "__editable__" not in path]
    sys.path_importer_cache.clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "transformer_lab" or "editable" in name]:
        del sys.modules[name]


def _serve(path: str, handle: Callable[[dict[str, Any], list[int], socket.socket], None], is_ready: Any = None) -> None:
    """Listen on `path`: every connection brings one JSON line with open files, and a child that handles it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getppid()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"{path}.new")
    listener.listen(64)
    os.rename(f"{path}.new", path)  # whoever sees it can connect
    gc.collect()
    gc.freeze()  # what is here stays, and stays shared
    if is_ready:
        is_ready()
    while True:
        readable, _, _ = select.select([listener], [], [], 1.0)
        if os.getppid() != parent:  # where no signal says so
            os._exit(0)
        if not readable:
            continue
        connection, _ = listener.accept()
        if os.fork() == 0:
            try:
                listener.close()
                _close_all_but(connection.fileno())
                connection.settimeout(10)
                request, files = _receive(connection)
                connection.settimeout(None)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                handle(request, files, connection)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        connection.close()


def _close_all_but(*kept: int) -> None:
    first = 3
    for number in sorted(kept):
        os.closerange(first, number)
        first = number + 1
    os.closerange(first, 4096)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    data, files = b"", []
    while not data.endswith(b"\n") and len(data) < MOST_REQUEST_BYTES:
        part, ancillary, _, _ = connection.recvmsg(MOST_REQUEST_BYTES, socket.CMSG_SPACE(16 * 4))
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                files += numbers
        if not part:
            break
        data += part
    return json.loads(data), files


def _die_with_parent() -> None:
    with contextlib.suppress(AttributeError):
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# The keeper -----------------------------------------------------------------------------------------------------------


def keeper(request: dict[str, Any], files: list[int], connection: socket.socket) -> None:
    """Start one kernel, hold it to its limits, and say on `connection` how it ended.

    The connection takes single letters: `i` interrupts the kernel. It gives one JSON line when the kernel has been
    started and one when it has ended: `{"ended": reason, "signal": ..., "exit": ...}`.
    """
    sandboxed = request["sandboxed"]
    if sandboxed:
        init, *namespaces = files
        _enter(namespaces)
    else:
        init = None
        with contextlib.suppress(AttributeError):
            _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    kernel = os.fork()
    if kernel == 0:
        try:
            connection.close()
            _close_all_but()
            run_kernel(request)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)
    _say(connection, {"started": kernel})
    reason, status = _watch(request, kernel, connection, init)
    _kill_all(kernel, init)
    if status is None:
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(kernel, 0)  # it has been killed: this is no wait for its will
    ended = {"ended": reason, "signal": 0, "exit": 0}
    if status is not None and os.WIFSIGNALED(status):
        ended["signal"] = os.WTERMSIG(status)
    elif status is not None:
        ended["exit"] = os.waitstatus_to_exitcode(status)
    _say(connection, ended)
    os._exit(0)


def _say(connection: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _enter(files: list[int]) -> None:
    """Enter the namespaces of the sandbox, given in the order of `NAMESPACES` and then its user namespace, if any."""
    spaces = dict(zip((*NAMESPACES, "user"), files, strict=False))
    if "user" in spaces:
        # All but the last belong to the user namespace that was made first.
        first = fcntl.ioctl(spaces["mnt"], NS_GET_USERNS)
        _setns(first)
        os.close(first)
    for name in NAMESPACES:
        _setns(spaces[name])
    if "user" in spaces:
        with contextlib.suppress(OSError):  # EINVAL: this is the one we are in
            _setns(spaces["user"])
    for file in files:
        os.close(file)
    os.chdir("/")


def _setns(file: int) -> None:
    if _libc.setns(file, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def _watch(request: dict[str, Any], kernel: int, connection: socket.socket, init: int | None) -> tuple[str, int | None]:
    """Wait until the kernel ends, its owner goes away, or a limit is passed: `(reason, status of the kernel)`."""
    deadline = time.monotonic() + request["seconds"]
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    with contextlib.suppress(AttributeError, OSError):
        poll.register(os.pidfd_open(kernel), select.POLLIN)
    while True:
        ended, status = os.waitpid(kernel, os.WNOHANG)
        if ended:
            return "exit", status
        if time.monotonic() > deadline:
            return "time", None
        if over := _over_limit(request, kernel, init is not None):
            return over, None
        for number, _ in poll.poll(WATCH_SECONDS * 1000):
            if number == connection.fileno():
                try:
                    letters = connection.recv(16)
                except OSError:
                    letters = b""
                if not letters:
                    return "owner", None
                if b"i" in letters:
                    os.kill(kernel, signal.SIGINT)


def _over_limit(request: dict[str, Any], kernel: int, sandboxed: bool) -> str:
    """Which limit of the whole group is passed: `memory`, `processes` or none."""
    try:
        numbers = _group(kernel, sandboxed)
    except OSError:
        return ""
    if len(numbers) > request["processes"]:
        return "processes"
    left = request["memory"]
    for folder in ("/tmp", "/dev/shm") if sandboxed else ():
        with contextlib.suppress(OSError):
            status = os.statvfs(folder)
            left -= (status.f_blocks - status.f_bfree) * status.f_frsize
            left -= (status.f_files - status.f_ffree) * BYTES_OF_AN_ENTRY
    left -= _sockets(numbers) * BYTES_OF_A_SOCKET if sandboxed else 0
    # Forked processes share most of what the first sum counts for each: the second one is exact, and takes longer.
    if sum(map(_resident_bytes, numbers)) > left and sum(map(_share_of_memory, numbers)) > left:
        return "memory"
    return ""


def _group(kernel: int, sandboxed: bool) -> list[int]:
    """The kernel's processes: in the sandbox all that its own /proc shows, but for the two that hold the namespaces."""
    if sandboxed:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    try:
        import psutil

        return [kernel, *(child.pid for child in psutil.Process(os.getpid()).children(recursive=True))]
    except Exception:
        return [kernel]


def _resident_bytes(number: int) -> int:
    """With what it shares: memory may be shared and mapped by one process alone."""
    try:
        with open(f"/proc/{number}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def _share_of_memory(number: int) -> int:
    try:
        with open(f"/proc/{number}/smaps_rollup") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration, ValueError):  # it has ended, or hides: then all that it maps counts as its own
        return _resident_bytes(number)


def _reserved_bytes() -> int:
    """What libraries have asked for and never touched: a build of PyTorch for CUDA, hundreds of MiB; others, little."""
    try:
        with open("/proc/self/statm") as file:
            _, resident, _, _, _, data, _ = map(int, file.read().split())
        return max(0, data - resident) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def _sockets(numbers: list[int]) -> int:
    """How many there are in the sandbox, those that are on their way through another socket among them."""
    for number in numbers:
        try:
            with open(f"/proc/{number}/net/sockstat") as file:
                return int(file.readline().split()[2])
        except (OSError, IndexError, ValueError):  # it has ended: the next one says it
            continue
    return 0


def _kill_all(kernel: int, init: int | None) -> None:
    if init is not None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(init, signal.SIGKILL)  # the first process of the namespace: all others end with it
        return
    with contextlib.suppress(OSError):
        os.killpg(kernel, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(kernel, signal.SIGKILL)
    with contextlib.suppress(ImportError):
        import psutil

        for _ in range(100):  # those that left the group became our children
            children = psutil.Process(os.getpid()).children(recursive=True)
            for child in children:
                with contextlib.suppress(psutil.Error):
                    child.kill()
            if not [child for child in children if child.pid != kernel]:
                break
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG)[0]) and ended != kernel:
                    pass


# The kernel -----------------------------------------------------------------------------------------------------------


def run_kernel(request: dict[str, Any]) -> None:
    """Give up all rights, and be an IPython kernel until killed."""
    os.setsid()
    log = os.dup(2)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 (as long as we live)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    for name in [*os.environ]:
        del os.environ[name]
    os.environ.update(request["environment"])
    os.umask(0o077)
    try:
        _give_up_rights(request)
        for folder in (request["environment"]["HOME"], request["folder"]):
            os.makedirs(folder, exist_ok=True)
        os.chdir(request["folder"])
        app = _kernel_app(request["shell"], request["iopub"])
    except BaseException:
        os.write(log, traceback.format_exc().encode())
        raise
    os.close(log)  # nothing of the student has run so far
    app.start()


def _give_up_rights(request: dict[str, Any]) -> None:
    import resource

    limits = {
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": request["file_bytes"],
        "RLIMIT_CPU": request["cpu_seconds"],
        "RLIMIT_DATA": request["memory"] + _reserved_bytes(),
        "RLIMIT_NOFILE": request["files"],
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    if request["uid"] is not None or request["own_count"]:
        limits["RLIMIT_NPROC"] = request["processes"]
    for name, value in limits.items():
        if hasattr(resource, name):
            number = getattr(resource, name)
            _, hard = resource.getrlimit(number)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(number, (value, value))
    if sys.platform == "linux":
        if not request["sandboxed"]:
            _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        else:
            for capability in range(64):
                _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if request["uid"] is not None:
        os.setgroups([])
        os.setresgid(request["uid"], request["uid"], request["uid"])
        os.setresuid(request["uid"], request["uid"], request["uid"])
    if request["sandboxed"]:
        # version 3, this process; no effective, permitted or inheritable capability
        header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
        if _libc.capset(header, nothing) != 0:
            raise OSError(ctypes.get_errno(), "capset")
        if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
        if os.getuid() == 0 or os.geteuid() == 0:
            raise OSError(errno.EPERM, "the kernel would run as root")
        _forbid_calls()


# Calls that a notebook does not need, as (x86_64, aarch64). The first ones make memory that belongs to no process, so
# that nobody could count it; the others make namespaces, where the limits of this one end, or reach into processes.
FORBIDDEN_CALLS = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "open_tree": (428, 428),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
}
CLONE, CLONE3 = (56, 220), (435, 435)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
NEW_NAMESPACES = 0x7E020000  # all flags of `clone` that ask for one


def filter_of_calls() -> bytes:
    """Instructions (seccomp) that refuse `FORBIDDEN_CALLS`; on a machine whose numbers of calls are unknown, none."""
    load, equal, set_bits, give = 0x20, 0x15, 0x45, 0x06
    allow, refuse, unknown, kill = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS, 0x80000000
    program = []
    if os.uname().machine in ARCHITECTURES:
        column, architecture = ARCHITECTURES[os.uname().machine]
        program += [
            (load, 0, 0, 4),  # the architecture: another one has other numbers
            (equal, 1, 0, architecture),
            (give, 0, 0, kill),
            (load, 0, 0, 0),  # the number of the call
            (set_bits, 0, 1, 0x40000000),  # x32, with numbers of its own
            (give, 0, 0, unknown),
            (equal, 0, 1, CLONE3[column]),  # its flags cannot be read here; the C library takes `clone` then
            (give, 0, 0, unknown),
        ]
        for numbers in FORBIDDEN_CALLS.values():
            program += [(equal, 0, 1, numbers[column]), (give, 0, 0, refuse)]
        program += [
            (equal, 0, 3, CLONE[column]),
            (load, 0, 0, 16),  # its flags
            (set_bits, 0, 1, NEW_NAMESPACES),
            (give, 0, 0, refuse),
        ]
    program += [(give, 0, 0, allow)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _forbid_calls() -> None:
    """Put the filter on this process, which cannot take it off."""
    code = filter_of_calls()
    instructions = ctypes.create_string_buffer(code, len(code))
    filter_program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(instructions))
    if _libc.prctl(PR_SET_SECCOMP, 2, filter_program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def _kernel_app(shell: str, iopub: str) -> Any:
    import zmq
    from ipykernel.control import ControlThread
    from ipykernel.iostream import OutStream
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp

    class BoundedOutStream(OutStream):
        """Sends the first million characters that a cell prints."""

        def write(self, string: str) -> int | None:
            parent = self.parent_header
            cell = parent.get("msg_id") if isinstance(parent, dict) else None
            if getattr(self, "_cell", None) != cell:
                self._cell, self._left = cell, OUTPUT_CHARACTERS
            if not isinstance(string, str) or len(string) <= self._left:
                self._left -= len(string) if isinstance(string, str) else 0
                return super().write(string)
            kept, self._left = string[: max(0, self._left)], 0
            if kept:
                super().write(kept)
            return len(string)

    class Kernel(IPythonKernel):
        """Takes requests to observe objects, beside those to run cells."""

        msg_types = [*IPythonKernel.msg_types, "observe_request"]  # noqa: RUF012 (as in its base class)

        def observe_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
            import transformer_lab_observing

            reply = transformer_lab_observing.answer_request(parent["content"], self.shell.user_ns)
            self.session.send(stream, "observe_reply", reply, parent, ident=ident)

    class KernelApp(IPKernelApp):
        """Connects to the sockets of the grader, so that nothing outside the sandbox has to be writable in it."""

        def init_connection_file(self) -> None:
            self.transport = "ipc"

        def init_heartbeat(self) -> None:
            self.hb_port = 1

        def write_connection_file(self, **kwargs: Any) -> None: ...

        def log_connection_info(self) -> None:
            self._ports = dict.fromkeys(("shell", "iopub", "stdin", "hb", "control"), 1)

        def init_sockets(self) -> None:
            self.context = zmq.Context()
            self.shell_socket = self.context.socket(zmq.ROUTER)
            self.shell_socket.connect(f"ipc://{shell}")
            self.stdin_socket = self.context.socket(zmq.ROUTER)
            self.control_socket = self.context.socket(zmq.ROUTER)
            self.debugpy_socket = self.context.socket(zmq.STREAM)
            self.debug_shell_socket = None
            self.shell_port = self.stdin_port = self.control_port = 1
            self.control_thread = ControlThread(daemon=True)
            self.shell_channel_thread = None
            self.init_iopub(self.context)

        def _bind_socket(self, s: Any, port: int) -> int:
            s.connect(f"ipc://{iopub}")  # the only one that the base class binds here
            return 1

        def init_io(self) -> None:
            self.outstream_class = None
            super().init_io()
            sys.stdout, sys.stderr = (
                BoundedOutStream(self.session, self.iopub_thread, name, watchfd=False) for name in ("stdout", "stderr")
            )

    app = KernelApp.instance(
        kernel_class=Kernel, quiet=True, capture_fd_output=False, log_level=50, matplotlib=None, pylab=None
    )
    app.config.Session.key = b""  # nobody but this sandbox can reach the sockets: a signature would prove nothing
    app.config.HistoryManager.enabled = False
    app.config.InlineBackend.figure_formats = set()  # nobody looks at the pictures
    app.config.ZMQInteractiveShell.colors = "nocolor"
    app.initialize([])
    app.shell.ask_exit = lambda: None  # `exit()` at the end of a cell is no end of the notebook
    return app


if __name__ == "__main__":
    main(sys.argv[1])
