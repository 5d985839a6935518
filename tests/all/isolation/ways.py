"""A hostile server: in one process it leaves a word, in another person's process it looks for it.

Its tool `leave` gives what the other has to know; its tool `find` gives `found`, or the name of the error
that it met. Each way here is a row of the table in SECURITY.md.
"""

import ctypes
import errno
import json
import os
import signal
import socket
import sys
import threading

WORD = b"psst"
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.shmat.restype = ctypes.c_void_p
ARM = os.uname().machine == "aarch64"
ADD_KEY, KEYCTL = (217, 219) if ARM else (248, 250)
PIDFD_OPEN, PIDFD_GETFD = 434, 438
IPC_CREAT, IPC_RMID, SETVAL, GETVAL = 0o1000, 0, 16, 12
kept = []


def check(result):
    """The result of a call, or its error."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def serve(listener):
    """Says the word to each that comes."""
    kept.append(listener)

    def run():
        while True:
            connection, _ = listener.accept()
            connection.sendall(WORD)
            connection.close()

    threading.Thread(target=run, daemon=True).start()


def connect(family, address):
    with socket.socket(family) as client:
        client.connect(address)
        return client.recv(16)


class Message(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_long), ("text", ctypes.c_char * 16)]


def leave_shm(place):
    number = check(libc.shmget(place["key"], 4096, IPC_CREAT | 0o666))
    address = check(libc.shmat(number, None, 0))
    ctypes.memmove(address, WORD, len(WORD))
    return number


def find_shm(number, place):
    number = check(libc.shmget(place["key"], 0, 0))
    return ctypes.string_at(check(libc.shmat(number, None, 0)), len(WORD))


def leave_sem(place):
    number = check(libc.semget(place["key"], 1, IPC_CREAT | 0o666))
    check(libc.semctl(number, 0, SETVAL, 42))


def find_sem(_, place):
    return WORD if check(libc.semctl(check(libc.semget(place["key"], 0, 0)), 0, GETVAL)) == 42 else b""


def leave_msg(place):
    number = check(libc.msgget(place["key"], IPC_CREAT | 0o666))
    check(libc.msgsnd(number, ctypes.byref(Message(1, WORD)), 16, 0))


def find_msg(_, place):
    message = Message()
    check(libc.msgrcv(check(libc.msgget(place["key"], 0)), ctypes.byref(message), 16, 0, 0o4000))
    return message.text


def mq_name(place):
    return f"/pontoon-{place['key']}".encode()


def leave_mq(place):
    queue = check(libc.mq_open(mq_name(place), os.O_CREAT | os.O_RDWR, 0o666, None))
    check(libc.mq_send(queue, WORD, len(WORD), 0))


def find_mq(_, place):
    text = ctypes.create_string_buffer(8192)
    queue = check(libc.mq_open(mq_name(place), os.O_RDONLY | os.O_NONBLOCK))
    length = check(libc.mq_receive(queue, text, 8192, None))
    libc.mq_unlink(mq_name(place))
    return text.raw[:length]


def write(path, text=WORD):
    with open(path, "wb") as file:
        file.write(text)
    os.chmod(path, 0o666)
    return os.path.abspath(path)


def read(path):
    with open(path, "rb") as file:
        return file.read(16)


def leave_shared_file(place):
    return write(f"/dev/shm/pontoon-{place['key']}")


def find_shared_file(path, _):
    word = read(path)
    os.unlink(path)
    return word


def leave_abstract(place):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0pontoon-{place['key']}")
    listener.listen()
    serve(listener)


def leave_named(_):
    listener = socket.socket(socket.AF_UNIX)
    # By a short name: the whole one may be longer than a socket's may be.
    listener.bind("socket")
    os.chmod("socket", 0o777)
    listener.listen()
    serve(listener)
    return os.path.abspath("socket")


def find_named(path, _):
    folder = os.open(os.path.dirname(path), os.O_PATH)
    return connect(socket.AF_UNIX, f"/proc/self/fd/{folder}/socket")


def leave_tcp(_):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    serve(listener)
    return listener.getsockname()[1]


def leave_netlink(_):
    # The part for programs among themselves.
    mine = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2)
    mine.bind((0, 0))
    kept.append(mine)

    def run():
        while True:
            _, sender = mine.recvfrom(64)
            mine.sendto(WORD, sender)

    threading.Thread(target=run, daemon=True).start()
    return mine.getsockname()[0]


def find_netlink(number, _):
    mine = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2)
    mine.bind((0, 0))
    mine.settimeout(5)
    mine.sendto(b"?", (number, 0))
    return mine.recv(64)


def leave_key(place):
    name = f"pontoon-{place['key']}".encode()
    key = check(libc.syscall(ADD_KEY, b"user", name, WORD, len(WORD), -4))
    # All rights for all users.
    check(libc.syscall(KEYCTL, 5, key, 0x3F3F3F3F))
    return key


def find_key(key, _):
    text = ctypes.create_string_buffer(16)
    length = check(libc.syscall(KEYCTL, 11, key, text, 16))
    libc.syscall(KEYCTL, 3, key)
    return text.raw[:length]


def leave_attribute(place):
    os.setxattr(place["file"], "user.word", WORD)


def find_attribute(_, place):
    return os.getxattr(place["file"], "user.word")


def leave_time(place):
    os.utime(place["file"], (4242, 4242))


def find_time(_, place):
    return WORD if os.stat(place["file"]).st_mtime == 4242 else b""


def leave_mode(place):
    os.chmod(place["file"], 0o642)


def find_mode(_, place):
    return WORD if os.stat(place["file"]).st_mode & 0o777 == 0o642 else b""


def leave_memory(_):
    memory = ctypes.create_string_buffer(WORD)
    file = os.memfd_create("word")
    os.write(file, WORD)
    kept.append((memory, file))
    return [os.getpid(), ctypes.addressof(memory), file]


class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def find_memory(there, _):
    text = ctypes.create_string_buffer(len(WORD))
    mine = Piece(ctypes.addressof(text), len(WORD))
    theirs = Piece(there[1], len(WORD))
    check(libc.process_vm_readv(there[0], ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0))
    return text.raw


def find_trace(there, _):
    # By a process that ends at once, and lets go of it.
    mine = os.fork()
    if mine == 0:
        os._exit(0 if libc.syscall(117 if ARM else 101, 0x4206, there[0], 0, 0) == 0 else ctypes.get_errno())
    number = os.waitstatus_to_exitcode(os.waitpid(mine, 0)[1])
    if number:
        raise OSError(number, os.strerror(number))
    return WORD


def find_descriptor(there, _):
    process = check(libc.syscall(PIDFD_OPEN, there[0], 0))
    file = check(libc.syscall(PIDFD_GETFD, process, there[2], 0))
    return os.pread(file, 16, 0)


def find_in_proc(there, _):
    return WORD if b"\0" in read(f"/proc/{there[0]}/environ") + b"\0" else b""


def find_signal(there, _):
    os.kill(there[0], signal.SIGURG)
    return WORD


def find_priority(there, _):
    os.setpriority(os.PRIO_PROCESS, there[0], 5)
    return WORD


def leave_file(_):
    return write("word")


def find_file(path, _):
    return read(path)


def leave_pipe(_):
    os.mkfifo("pipe")
    kept.append(os.open("pipe", os.O_RDWR))
    os.write(kept[-1], WORD)
    return os.path.abspath("pipe")


def find_pipe(path, _):
    return os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 16)


def find_watch(path, _):
    watcher = check(libc.inotify_init())
    check(libc.inotify_add_watch(watcher, os.path.dirname(path).encode(), 0xFFF))
    return WORD


WAYS = {
    "System V shared memory": (leave_shm, find_shm),
    "System V semaphores": (leave_sem, find_sem),
    "System V message queues": (leave_msg, find_msg),
    "POSIX message queues": (leave_mq, find_mq),
    "files in `/dev/shm`": (leave_shared_file, find_shared_file),
    "keyrings": (leave_key, find_key),
    "netlink sockets": (leave_netlink, find_netlink),
    "abstract sockets": (leave_abstract, lambda _, place: connect(socket.AF_UNIX, f"\0pontoon-{place['key']}")),
    "sockets with a path": (leave_named, find_named),
    "TCP and UDP on this machine": (leave_tcp, lambda port, _: connect(socket.AF_INET, ("127.0.0.1", port))),
    "files of a workspace": (leave_file, find_file),
    "pipes in a workspace": (leave_pipe, find_pipe),
    "watches of files": (leave_file, find_watch),
    "extended attributes": (leave_attribute, find_attribute),
    "times of files": (leave_time, find_time),
    "modes of files": (leave_mode, find_mode),
    "ptrace": (leave_memory, find_trace),
    "memory of processes": (leave_memory, find_memory),
    "descriptors of processes": (leave_memory, find_descriptor),
    "environment in `/proc`": (leave_memory, find_in_proc),
    "signals": (leave_memory, find_signal),
    "priorities and limits": (leave_memory, find_priority),
}


def call(name, arguments):
    way, place = arguments.get("way"), arguments.get("place", {})
    try:
        if name == "ways":
            # The version of Landlock: what one kernel cannot shut, the next may.
            return {"ways": list(WAYS), "landlock": libc.syscall(444, None, 0, 1)}
        leave, find = WAYS[way]
        if name == "leave":
            return {"left": leave(place)}
        return "found" if find(arguments["left"], place).startswith(WORD) else "nothing"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def result(method, params):
    if method == "initialize":
        info = {"name": "ways", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("ways", "leave", "find")]}
    if method == "tools/call":
        text = json.dumps(call(params["name"], params["arguments"]))
        return {"content": [{"type": "text", "text": text}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result(message["method"], message.get("params"))}
        print(json.dumps(answer), flush=True)
