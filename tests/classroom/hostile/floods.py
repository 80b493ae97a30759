"""Submissions that write, send, or close more than they should, or whose names hide the grader's.

The tables have the same format as in `lies.py`.
"""

ALL = {}
KILLED = {"causal_mask": ("killed", 0.0)}

CONNECT = """
import os, random, socket, struct, threading, time

def connected(name):
    one = socket.socket(socket.AF_UNIX)
    one.connect(f"/run/kernel/{name}")
    return one

def greeted(name, kind):  # ZMTP 3, by hand
    one = connected(name)
    one.sendall(b"\\xff" + bytes(8) + b"\\x7f\\x03\\x00NULL" + bytes(16) + bytes(1) + bytes(31))
    one.recv(64, socket.MSG_WAITALL)
    ready = b"\\x05READY" + b"\\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    one.sendall(b"\\x04" + bytes([len(ready)]) + ready)
    return one
"""

SUBMISSIONS = {
    "200 MB of output": ({"causal_mask": "#RIGHT\nprint('x' * 200_000_000)"}, ALL),
    "200 MB of output in pieces": (
        {"causal_mask": "#RIGHT\nfor _ in range(2000):\n    print('y' * 100_000)"},
        ALL,
    ),
    "thousands of displays": (
        {
            "causal_mask": """
#RIGHT
from IPython.display import HTML, Javascript, display
for number in range(2000):
    display(HTML("<script>document.title=1</script>" * 100), Javascript("document.title=2"))
display(HTML("x" * 30_000_000))
"""
        },
        ALL,
    ),
    "text that is none": (
        {
            "causal_mask": """
#RIGHT
print("\\ud800 \\udfff \\x1b[2J\\x1b]0;title\\x07 \\x00 \\x9b31m ]]> <script>document.title=3</script>")
raise ValueError("\\ud800 \\x1b[31m ]]></failure><script>document.title=4</script> =cmd()")
"""
        },
        ALL,
    ),
    "results that are no text": (
        {
            "causal_mask": """
def causal_mask(length, device=None):
    kind = type("</pre><script>document.title=5</script>\\x1b[31m\\ud800", (Exception,), {})
    raise kind("=1+1 \\x1b[2J ]]> \\ud800" * 1000)
"""
        },
        {"causal_mask": ("failed", 0.0)},
    ),
    "a script for code": (
        {
            "causal_mask": """
def causal_mask(length, device):  # </code></pre><script>document.title=1</script><img src=x onerror=document.title=6>
    return '</span></pre></details><script src="https://example.org/x.js"></script><svg onload=document.title=7>'
"""
        },
        {"causal_mask": ("failed", 0.0)},
    ),
    "a lone surrogate in the code": ({"causal_mask": "#RIGHT\nx = '\ud800 \udfff'"}, ALL),
    "closes everything": ({"causal_mask": "#RIGHT\nimport os\nos.closerange(0, 1000)"}, KILLED),
    "closes its sockets": (
        {
            "causal_mask": """
#RIGHT
kernel = get_ipython().kernel
kernel.iopub_socket.close()
kernel.iopub_thread.socket.close()
"""
        },
        ALL,
    ),
    "garbage on the sockets": (
        {
            "causal_mask": "#RIGHT"
            + CONNECT
            + """
for name in ("shell", "iopub"):
    for data in (os.urandom(5000), b"\\xff" + bytes(8) + b"\\x7f" + os.urandom(54), b"GET / HTTP/1.0\\r\\n\\r\\n"):
        connected(name).sendall(data)
    one = greeted(name, b"PUB")
    try:
        one.sendall(b"\\x02" + struct.pack(">Q", 1 << 62) + os.urandom(1000))
        for _ in range(2000):
            one.sendall(bytes([random.choice([0, 1, 4]), 200]) + os.urandom(200))
    except OSError:
        pass
"""
        },
        ALL,
    ),
    "more connections than there are files": (
        {
            "causal_mask": "#RIGHT"
            + CONNECT
            + """
kept = []
for _ in range(6):
    if os.fork() == 0:
        try:
            while True: kept.append(connected("iopub"))
        except OSError:
            time.sleep(1000)
time.sleep(0.5)
"""
        },
        # each connection is charged for its full buffer; on a slow machine, the cell ends before there are thousands
        {"causal_mask": [("out of memory", 0.0), ("passed", 1.0)]},
    ),
    "a message without an end": (
        {
            "causal_mask": "#RIGHT"
            + CONNECT
            + """
part = b"\\x03" + struct.pack(">Q", 1 << 20) + bytes(1 << 20)  # a part of a mebibyte, and more follow
one = greeted("iopub", b"PUB")
while True:
    one.sendall(part)
"""
        },
        # on a slow machine, the cell is interrupted before memory is full, and its answer is correct
        {"causal_mask": [("out of memory", 0.0), ("passed", 1.0)]},
    ),
    "a message of many parts": (
        {
            "causal_mask": "#RIGHT"
            + CONNECT
            + """
one = greeted("iopub", b"PUB")
for _ in range(20):
    one.sendall(b"\\x01\\x01x" * 100_000 + b"\\x00\\x01x")
"""
        },
        ALL,
    ),
    "replies in the name of the kernel": (
        {
            "causal_mask": """
#WRONG
import json, threading, zmq

def answer():
    shell = zmq.Context().socket(zmq.DEALER)
    shell.connect("ipc:///run/kernel/shell")
    while True:
        parts = shell.recv_multipart()
        parent = json.loads(parts[2])
        header = dict(parent, msg_type=parent["msg_type"].replace("request", "reply"))
        content = {"status": "ok", "data": json.dumps({"observations": [[["bool", 1], None, []]] * 6, "passed": True})}
        shell.send_multipart([b"<IDS|MSG>", b"", *(json.dumps(one).encode() for one in (header, parent, {}, content))])

threading.Thread(target=answer, daemon=True).start()
"""
        },
        None,  # which side gets a request is random, but there must be no unearned points: see the test
    ),
    "names that hide ours": (
        {
            "causal_mask": """
#RIGHT
check = hint = solution = progress = report = print = get_ipython = display = exercises = observe = json = None
__name__ = "transformer_lab.classroom"
"""
        },
        ALL,
    ),
    "files that hide ours": (
        {
            "causal_mask": """
#RIGHT
import os, sys
for name in ("torch", "json", "numpy", "transformer_lab", "kernel_side", "conftest", "sitecustomize"):
    with open(f"{name}.py", "w") as file:
        file.write("raise SystemExit('hidden')")
with open("pytest.ini", "w") as file:
    file.write("[pytest]\\naddopts = --collect-only")
sys.path.insert(0, os.getcwd())
"""
        },
        ALL,
    ),
    "settings of torch": (
        {
            "causal_mask": """
#RIGHT
torch.set_default_dtype(torch.float16)
torch.set_grad_enabled(False)
torch.set_default_device("meta")
torch.manual_seed = lambda *anything: None
"""
        },
        ALL,
    ),
    "a detached process that rewrites results": (
        {
            "causal_mask": """
#RIGHT
import glob, os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            for folder in ("/run", "/tmp", "/dev/shm", "/work", "/home", "/root", "/proc/*/cwd", "/proc/1/root/tmp"):
                for path in glob.glob(folder + "/**/*", recursive=True):
                    try:
                        open(path, "w").write('<testsuites failures="0"/>')
                        os.remove(path)
                    except OSError:
                        pass
            time.sleep(0.1)
    os._exit(0)
"""
        },
        ALL,
    ),
}
