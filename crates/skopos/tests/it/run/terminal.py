"""terminal.py COMMAND...: types at a shell with job control that runs the command, and prints what it saw.

The command runs a task that loops. The task is stopped with Ctrl-Z, continued, notified of a new size of
the terminal, told to stop itself, sent to the background, brought back, and interrupted with Ctrl-C, at
which it returns 4.
"""

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import sys
import termios
import time

PATIENCE = 60
# The quotes keep the output apart from the text of the task, which the shell prints with the job.
TASK = "trap 'echo it got WIN\"\"CH' WINCH; trap 'kill -STOP $$; echo it goes o\"\"n' USR1; " \
       "trap 'echo it got I\"\"NT; exit 4' INT; echo begun; " \
       "while :; do sleep 0.05; done"

pid, terminal = pty.fork()
if pid == 0:
    # A shell that starts tests in the background lets them ignore these signals.
    for name in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)
    os.environ["PS1"] = "ready> "
    os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
seen = ""


def until(pattern):
    """Reads until the pattern is there, and forgets what came before it."""
    global seen
    end = time.time() + PATIENCE
    while not (found := re.search(pattern, seen)):
        if time.time() > end:
            sys.exit(f"waited for {pattern!r} and saw {seen!r}")
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 4096).decode(errors="replace")
    seen = seen[found.end():]
    return found


def type_(text):
    os.write(terminal, text.encode())


until("ready> ")
type_("stty -echo\n")
until("ready> ")
type_(shlex.join(sys.argv[1:] + ["sh", "-c", TASK]) + "\n")
until("begun")
type_("\x1a")
until(r"\[1\]\+ +Stopped")
until("ready> ")
# The monitor, its shell and, unless that shell is between two, its `sleep` are stopped. The shell at the
# terminal and the commands that list the states are not. The task stops a moment after the monitor at most.
end = time.time() + PATIENCE
stopped = 0
while stopped not in (2, 3):
    type_("ps -o stat= -t $(tty | sed s,/dev/,,) | tr -d '\\n'; echo ' are the states'\n")
    states = until(r"(\S[^\r\n]*) are the states").group(1)
    stopped = len(re.findall("[Tt]", states))
    until("ready> ")
    if time.time() > end:
        sys.exit(f"of {states} too few are stopped")
print("stopped")
type_("jobs -p; echo is the job\n")
monitor = int(until(r"(\d+)\s+is the job").group(1))
until("ready> ")
type_("fg\n")
time.sleep(0.3)
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
until("it got WINCH")
print("resized")
for command in ("bg", "fg"):
    # The monitor passes the signal on to the task, which stops only itself.
    os.kill(monitor, signal.SIGUSR1)
    until(r"\[1\]\+ +Stopped")
    until("ready> ")
    type_(command + "\n")
    until("it goes on")
    if command == "bg":
        type_("fg\n")
        until("sh -c")
        time.sleep(0.3)
print("stopped by itself")
type_("\x03")
until("it got INT")
until("ready> ")
type_("echo code $?.\n")
print("code", until(r"code (\d+)\.").group(1))
type_("exit\n")
os.waitpid(pid, 0)
