"""Runs a monitor below a socket that has the name of a monitor above, and prints what that socket receives.

Usage: above.py WHO COMMAND... WHO is the process that has taken the name: `same` is an ancestor of the same
user, `user` an ancestor of another user, `stranger` a process of the same user that is not an ancestor."""

import os
import socket
import sys

NOBODY = 65534
who, command = sys.argv[1], sys.argv[2:]
name = f"\0skopos-run-{os.getpid()}"
ready, go = os.pipe()
listens_here = who != "stranger"


def listener():
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    taken.bind(name)
    taken.listen(8)
    taken.settimeout(0.2)
    return taken


def heard(taken):
    told = connections = 0
    try:
        while True:
            connection, _ = taken.accept()
            connection.settimeout(0.2)
            connections += 1
            told += len(connection.recv(1 << 16))
    except socket.timeout:
        pass
    print("connections" if connections else "none", "told" if told else "nothing", flush=True)


def run():
    os.read(ready, 1)
    os.execvp(command[0], command)


if listens_here:
    child = os.fork()
    if child == 0:
        run()
    if who == "user":
        os.setresuid(NOBODY, NOBODY, NOBODY)
    taken = listener()
    os.write(go, b"x")
    os.waitpid(child, 0)
    heard(taken)
else:
    over, end = os.pipe()
    stranger = os.fork()
    if stranger == 0:
        taken = listener()
        os.write(go, b"x")
        os.close(end)
        os.read(over, 1)
        heard(taken)
        os._exit(0)
    child = os.fork()
    if child == 0:
        run()
    os.waitpid(child, 0)
    os.write(end, b"x")
    os.waitpid(stranger, 0)
