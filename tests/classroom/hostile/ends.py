"""Submissions that kill, stop, hang, or overload the process that runs them.

The tables have the same format as in `lies.py`. If a cell fails after it has defined a correct answer, the answer
still earns its points.
"""

KILLED = {"causal_mask": ("killed", 0.0)}
TIMED_OUT = {"causal_mask": ("timed out", 0.0)}
FAILED = {"causal_mask": ("failed", 0.0)}
OUT_OF_MEMORY = {"causal_mask": ("out of memory", 0.0)}
ALL = {}

SUBMISSIONS = {
    "sys.exit in the cell": ({"causal_mask": "#RIGHT\nimport sys\nsys.exit(3)"}, ALL),
    "exit, quit and the shell's": ({"causal_mask": "#RIGHT\nquit()\nget_ipython().ask_exit()\nexit()"}, ALL),
    "sys.exit in the call": ({"causal_mask": "import sys\ndef causal_mask(*a, **k): sys.exit(0)"}, FAILED),
    "os._exit in the cell": ({"causal_mask": "#RIGHT\nimport os\nos._exit(0)"}, KILLED),
    "os._exit in the call": ({"causal_mask": "import os\ndef causal_mask(*a, **k): os._exit(0)"}, KILLED),
    "a base exception": (
        {
            "causal_mask": """
class Stop(BaseException):
    def __str__(self): raise SystemExit
    def __repr__(self): raise KeyboardInterrupt
    @property
    def __traceback__(self): raise SystemExit

def causal_mask(*a, **k): raise Stop
"""
        },
        FAILED,
    ),
    "an interrupt of its own": ({"causal_mask": "def causal_mask(*a, **k): raise KeyboardInterrupt"}, FAILED),
    "signals to everybody": (
        {"causal_mask": "#RIGHT\nimport os\nfor who in (os.getppid(), 1, 2, 0, -1):\n    os.kill(who, 9)"},
        KILLED,
    ),
    "a shell that kills everybody": ({"causal_mask": "#RIGHT\n!kill -9 -1"}, KILLED),
    "signals to the parent and the group": (
        {
            "causal_mask": """
#RIGHT
import os, signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
    for send, who in ((os.kill, os.getppid()), (os.killpg, os.getpgrp()), (os.kill, -1), (os.kill, 1)):
        try:
            send(who, number)
        except OSError:
            pass
"""
        },
        ALL,
    ),
    "it stops itself": ({"causal_mask": "#RIGHT\nimport os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"}, TIMED_OUT),
    "a crash of the interpreter": ({"causal_mask": "#RIGHT\nimport ctypes\nctypes.string_at(0)"}, KILLED),
    "a loop below the answer": ({"causal_mask": "#RIGHT\nwhile True: pass"}, ALL),
    "a loop in the call": ({"causal_mask": "def causal_mask(*a, **k):\n    while True: pass"}, TIMED_OUT),
    "a loop that swallows interrupts": (
        {
            "causal_mask": """
#RIGHT
import time
while True:
    try:
        time.sleep(1000)
    except BaseException:
        pass
"""
        },
        TIMED_OUT,
    ),
    "a call that swallows interrupts": (
        {
            "causal_mask": """
def causal_mask(*a, **k):
    while True:
        try:
            while True: pass
        except BaseException:
            pass
"""
        },
        TIMED_OUT,
    ),
    "a loop in C that holds the interpreter": (
        {"causal_mask": "#RIGHT\nsum(range(10**15))"},
        TIMED_OUT,
    ),
    "a partial that is its own function": (
        {
            "causal_mask": """
import functools

class Loop(functools.partial):
    func = property(lambda self: self)

causal_mask = Loop(print)
"""
        },
        TIMED_OUT,
    ),
    "wrapped without end": (
        {
            "causal_mask": """
class Wrapped:
    __wrapped__ = property(lambda self: Wrapped())
    def __call__(self, *a, **k): return self

causal_mask = Wrapped()
"""
        },
        FAILED,
    ),
    "it calls itself": ({"causal_mask": "def causal_mask(*a, **k): return causal_mask(*a, **k)"}, FAILED),
    "it calls itself without a limit": (
        {
            "causal_mask": """
import sys, threading
sys.setrecursionlimit(2**31 - 1)

class Deep:
    def __getattr__(self, name): return getattr(self, name + "x")
    def __call__(self, *a, **k): return self.more

causal_mask = Deep()
"""
        },
        {"causal_mask": [("killed", 0.0), ("failed", 0.0)]},  # since Python 3.12, the C stack has its own limit
    ),
    "threads": (
        {
            "causal_mask": """
#RIGHT
import threading, time
for _ in range(1000):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
"""
        },
        ALL,
    ),
    "forks": (
        {
            "causal_mask": """
#RIGHT
import os, time
for _ in range(300):
    if os.fork() == 0:
        time.sleep(1000)
"""
        },
        ALL,
    ),
    "memory in the cell": ({"causal_mask": "#RIGHT\nkept = []\nwhile True: kept.append(bytearray(50_000_000))"}, ALL),
    "memory in the call": (
        {"causal_mask": "def causal_mask(*a, **k): return torch.ones(1 << 33)"},
        OUT_OF_MEMORY,
    ),
    "memory of children": (
        {
            "causal_mask": """
#RIGHT
import os, time
for _ in range(8):
    if os.fork() == 0:
        kept = bytearray(b"1") * 300_000_000
        time.sleep(1000)
time.sleep(1000)
"""
        },
        OUT_OF_MEMORY,
    ),
    "memory in files": (
        {
            "causal_mask": """
#RIGHT
for folder in ("/tmp", "/dev/shm"):
    for number in range(40):
        with open(f"{folder}/{number}", "wb") as file:
            file.write(bytes(20_000_000))
"""
        },
        ALL,
    ),
    "garbage that comes back": (
        {
            "causal_mask": """
#RIGHT
import atexit, gc, os, weakref

class Again:
    def __init__(self): self.me = self
    def __del__(self):
        kept.append(self)
        if len(kept) < 2000:
            Again()
        raise SystemExit("from the grave")

kept = []
gc.set_threshold(1, 1, 1)
for _ in range(100): Again()
gc.collect()
atexit.register(lambda: [os.fork() for _ in range(3)])
"""
        },
        ALL,
    ),
    "a timer that raises anywhere": (
        {
            "causal_mask": """
#RIGHT
import signal
def ring(*anything): raise MemoryError("ring")
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 1000, 0.01)
"""
        },
        ALL,
    ),
    "another interrupt handler": (
        {
            "causal_mask": """
#RIGHT
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(10_000)
"""
        },
        TIMED_OUT,
    ),
}
