"""Start a kernel: enter the sandbox, and give up all privileges before the first cell runs.

`kernel_client.py` runs this file in a forked process. `multiprocessing` forks it from a process that has imported torch
and other libraries, but nothing from this package. So a kernel spends no time on imports and has no answers in its
memory.

The forked process is the kernel's supervisor. It enters the sandbox's namespaces and forks once more, because entering
a process ID namespace affects only a process's children. The student's code runs in that child.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import signal
import struct
import sys
import traceback
from typing import Any

NAMESPACES = ("mnt", "pid", "net", "ipc", "uts")
NS_GET_USERNS = 0xB701
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 24, 36, 38
SECCOMP_MODE_FILTER = 2
OUTPUT_CHARACTERS = 1_000_000  # per cell; any further output is dropped
EXIT_BROKEN = 70  # exit status if a kernel could not be started

_libc = ctypes.CDLL(None, use_errno=True)


def supervise(request: dict[str, Any]) -> None:
    """Run a kernel, and exit with its status. After signal N, the exit status is 128 + N, as in a shell.

    Without this status, `test_the_end_of_a_kernel_is_noticed_at_once` fails. Orphans of the kernel become children of
    this process. Otherwise, `test_without_a_sandbox_a_kernel_runs_and_ends_with_its_children` fails.
    """
    os.closerange(3, 4096)  # the pipes of `multiprocessing`
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    if request["sandbox"] is not None:
        _enter(request["sandbox"])
    kernel = os.fork()
    if kernel == 0:
        try:
            _run_kernel(request)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(EXIT_BROKEN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = os.waitstatus_to_exitcode(os.waitpid(kernel, 0)[1])
    if request["sandbox"] is None:
        _kill_children()
    os._exit(status if status >= 0 else 128 - status)


def _enter(process: int) -> None:
    """Enter the namespaces of the sandbox's first process.

    For an ordinary user, bubblewrap has created a user namespace that owns the others, so enter that namespace first.
    Otherwise, `test_root_and_ordinary_users_can_enter_a_sandbox` fails. A kernel that does not enter the namespaces
    makes `test_detached_processes_end_with_the_kernel` fail.
    """
    namespaces = [os.open(f"/proc/{process}/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
    if os.geteuid() != 0:
        innermost = os.open(f"/proc/{process}/ns/user", os.O_RDONLY)
        namespaces = [fcntl.ioctl(namespaces[0], NS_GET_USERNS), *namespaces, innermost]
    for namespace in namespaces:
        if _libc.setns(namespace, 0) != 0 and ctypes.get_errno() != errno.EINVAL:  # EINVAL: already in it
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)
    os.chdir("/")


def _kill_children() -> None:
    """Kill the processes that a kernel without a sandbox left behind. They have become children of this process.

    Without this, `test_without_a_sandbox_a_kernel_runs_and_ends_with_its_children` fails.
    """
    import psutil

    with contextlib.suppress(ChildProcessError):
        while True:
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    child.kill()
            os.waitpid(-1, 0)


# The kernel -----------------------------------------------------------------------------------------------------------


def _run_kernel(request: dict[str, Any]) -> None:
    """Run as an IPython kernel until killed."""
    from multiprocessing import resource_tracker

    resource_tracker._resource_tracker._fd = None  # closed above; a notebook that needs a tracker gets its own
    os.setsid()
    log = os.dup(2)
    null = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):
        os.dup2(null, file)
    os.close(null)
    sys.stdin = sys.__stdin__
    os.environ.clear()
    os.environ.update(request["environment"])
    os.umask(0o077)
    try:
        _limit_resources(request)
        if request["sandbox"] is not None:
            _give_up_privileges(request["uid"])
        for folder in (request["environment"]["HOME"], request["folder"]):
            os.makedirs(folder, exist_ok=True)
        os.chdir(request["folder"])
        _import_stubbed_package(request["package"])
        app = _kernel_app(request["shell"], request["iopub"])
    except BaseException:
        os.write(log, traceback.format_exc().encode())
        raise
    os.close(log)  # before any of the student's code runs
    app.start()


def _import_stubbed_package(folder: str) -> None:
    sys.path.insert(0, folder)
    import transformer_lab.exercises
    import transformer_lab.model
    import transformer_lab.plots

    if not str(transformer_lab.__file__).startswith(folder):
        raise RuntimeError(f"the kernel would see {transformer_lab.__file__}, which has the answers")


def _limit_resources(request: dict[str, Any]) -> None:
    """Set the limits that the system enforces for each process.

    Without them, the attacks called "forks" and "memory in the call" would exceed the group's limits between two
    checks.
    """
    import resource

    limits = {"CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0, **request["limits"]}
    limits["DATA"] += _untouched_bytes()
    # If the system would also count processes of other kernels or the grader, only the group's limit is used.
    if request["sandbox"] is None or (os.geteuid() != 0 and not _counts_processes_by_namespace()):
        del limits["NPROC"]
    for name, value in limits.items():
        if (number := getattr(resource, f"RLIMIT_{name}", None)) is not None:
            _, hard = resource.getrlimit(number)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(number, (value, value))


def _counts_processes_by_namespace() -> bool:
    """Return whether the system counts a user's processes separately in each user namespace (Linux 5.14)."""
    return [int(part) for part in platform.release().split("-")[0].split(".")[:2]] >= [5, 14]


def _untouched_bytes() -> int:
    """Return how much memory libraries have reserved but not used, which is hundreds of MiB with PyTorch for CUDA."""
    import psutil

    memory = psutil.Process().memory_info()
    return max(0, getattr(memory, "data", 0) - memory.rss)  # only Linux has `data`


def _give_up_privileges(uid: int | None) -> None:
    """Drop root and all capabilities.

    Otherwise, the attack called "signals to every process" succeeds, and `test_the_kernel_has_no_rights` fails.
    """
    for capability in range(64):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    no_capability = struct.pack("Ii", 0x20080522, 0), bytes(24)  # version 3 of the format, for this process
    if _libc.capset(*no_capability) != 0 or _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel cannot give up its privileges")
    if 0 in (os.getuid(), os.geteuid()):
        raise PermissionError("the kernel would run as root")
    code = seccomp_filter()
    instructions = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(instructions))
    if _libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


# System calls that no notebook needs, with their numbers for x86_64 and aarch64.
FORBIDDEN_CALLS = {
    # These allocate memory outside all processes and folders, so the grader's checks of the group would miss it.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    # A new namespace comes with privileges and with its own mounts, which those checks would miss as well.
    "unshare": (272, 97),
    # The kernel inherits the grader's keyrings, which no namespace hides.
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    # Most container escapes in recent years started with these.
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
}
CLONE, CLONE3 = (56, 220), (435, 435)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
NEW_NAMESPACES = 0x7E020000  # all flags of `clone` that create a namespace


def seccomp_filter() -> bytes:
    """Return the BPF program that refuses `FORBIDDEN_CALLS`.

    Without this program, `test_the_kernel_has_no_rights` fails.

    Raises:
        KeyError: The numbers of the system calls on this machine's architecture are not known.
    """
    load, equal, any_bit_set, end = 0x20, 0x15, 0x45, 0x06
    allow, refuse, unknown, kill = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS, 0x80000000
    column, architecture = ARCHITECTURES[os.uname().machine]
    program = [  # (instruction, how many instructions to skip if true, and if false, operand)
        (load, 0, 0, 4),  # check the architecture, because others have different numbers
        (equal, 1, 0, architecture),
        (end, 0, 0, kill),
        (load, 0, 0, 0),  # load the number of the call
        (any_bit_set, 0, 1, 0x40000000),  # x32, which also has different numbers
        (end, 0, 0, unknown),
        (equal, 0, 1, CLONE3[column]),  # a filter can't read its flags; the C library falls back to `clone`
        (end, 0, 0, unknown),
    ]
    for numbers in FORBIDDEN_CALLS.values():
        program += [(equal, 0, 1, numbers[column]), (end, 0, 0, refuse)]
    program += [
        (equal, 0, 3, CLONE[column]),
        (load, 0, 0, 16),  # load the flags of `clone`
        (any_bit_set, 0, 1, NEW_NAMESPACES),
        (end, 0, 0, refuse),
        (end, 0, 0, allow),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _kernel_app(shell: str, iopub: str) -> Any:
    """Return an ipykernel that connects to the grader's sockets, so it needs no writable folder outside the sandbox."""
    from ipykernel.iostream import OutStream
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp

    class BoundedOutStream(OutStream):
        """A stream that keeps only the first million characters of a cell's output.

        Without this limit, the attack called "200 MB of output" would take too long.
        """

        def write(self, string: str) -> int | None:
            parent = self.parent_header
            cell = parent.get("msg_id") if isinstance(parent, dict) else None
            if getattr(self, "_cell", None) != cell:
                self._cell, self._left = cell, OUTPUT_CHARACTERS
            if not isinstance(string, str):
                return super().write(string)  # raises an exception
            shown, self._left = string[: self._left], max(0, self._left - len(string))
            if shown:
                super().write(shown)
            return len(string)

    class Kernel(IPythonKernel):
        """A kernel that answers requests to observe objects, in addition to running cells."""

        msg_types = [*IPythonKernel.msg_types, "observe_request"]  # noqa: RUF012 (as in its base class)

        def observe_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
            from transformer_lab.classroom import kernel_side

            reply = kernel_side.answer_request(parent["content"], self.shell.user_ns)
            self.session.send(stream, "observe_reply", reply, parent, ident=ident)

    class KernelApp(IPKernelApp):
        def init_connection_file(self) -> None: ...

        def write_connection_file(self, **kwargs: Any) -> None: ...

        def init_heartbeat(self) -> None:
            self.hb_port = 1

        def init_sockets(self) -> None:
            super().init_sockets()
            self.shell_socket.connect(f"ipc://{shell}")
            self.shell_channel_thread = None

        def _bind_socket(self, s: Any, port: int) -> int:
            if s is self.iopub_socket:
                s.connect(f"ipc://{iopub}")
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
    app.config.Session.key = b""  # a signature would prove nothing, because only this sandbox can reach the sockets
    app.config.HistoryManager.enabled = False
    app.config.InlineBackend.figure_formats = set()  # the grader ignores pictures
    app.config.ZMQInteractiveShell.colors = "nocolor"
    app.initialize([])
    app.shell.ask_exit = lambda: None  # `exit()` at the end of a cell does not end the notebook
    return app


if __name__ != "transformer_lab.classroom.kernel_process":
    supervise(REQUEST)  # noqa: F821 (see `runpy.run_path` in kernel_client.py)
