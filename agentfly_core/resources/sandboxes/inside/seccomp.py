"""A system call filter (seccomp, classic BPF) built by hand; x86_64 only.

Refused are calls that widen the kernel's attack surface or outlive a process: tracing, namespaces and mounts, modules,
bpf, io_uring, keyrings, System V and POSIX message queues and shared memory. With ``network=False`` no socket can be
made except a connected pair of streams.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform

Instruction = tuple[int, int, int, int]

LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_SET, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, KILL_PROCESS, FAIL = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE = 0, 4
"""Offsets in ``struct seccomp_data``; arguments follow from 16 in steps of 8, low half first."""
X86_64, X32_BIT = 0xC000003E, 0x40000000
NEW_NAMESPACE = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET together."""
SET_NO_NEW_PRIVS, SET_SECCOMP, FILTER_MODE = 38, 22, 2

CLONE, CLONE3, SOCKETPAIR = 56, 435, 53
NETWORK = {"socket": 41, "connect": 42, "bind": 49, "listen": 50}
REFUSED = {
    **{"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_getfd": 438, "perf_event_open": 298},
    **{"mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308, "open_tree": 428},
    **{"move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442},
    **{"name_to_handle_at": 303, "open_by_handle_at": 304, "quotactl": 179, "swapon": 167, "swapoff": 168, "acct": 163},
    **{"bpf": 321, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "userfaultfd": 323},
    **{"add_key": 248, "request_key": 249, "keyctl": 250, "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240},
    **{"kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176},
    **{"reboot": 169, "syslog": 103, "iopl": 172, "ioperm": 173, "settimeofday": 164, "clock_settime": 227},
    **{"sched_setaffinity": 203},
}


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("value", ctypes.c_uint)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction))]


def supported() -> bool:
    """Whether the filter knows this machine's system calls."""
    return platform.system() == "Linux" and platform.machine() == "x86_64"


def program(*, network: bool) -> list[Instruction]:
    """The filter as (code, jump if true, jump if false, value)."""
    refuse: Instruction = (RETURN, 0, 0, FAIL | errno.EPERM)
    code: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, X86_64),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER),
        (JUMP_GREATER_EQUAL, 0, 1, X32_BIT),
        (RETURN, 0, 0, KILL_PROCESS),
        (JUMP_EQUAL, 0, 1, CLONE3),
        (RETURN, 0, 0, FAIL | errno.ENOSYS),  # its flags lie in memory: the C library falls back to clone
        (JUMP_EQUAL, 0, 4, CLONE),
        (LOAD, 0, 0, _argument(0)),
        (JUMP_SET, 0, 1, NEW_NAMESPACE),
        refuse,
        (RETURN, 0, 0, ALLOW),
    ]
    if not network:
        # A pair of datagram sockets could still send to a named socket of the host: streams only.
        code += [
            (JUMP_EQUAL, 0, 7, SOCKETPAIR),
            (LOAD, 0, 0, _argument(0)),
            (JUMP_EQUAL, 0, 4, 1),  # AF_UNIX
            (LOAD, 0, 0, _argument(1)),
            (AND, 0, 0, 0xF),
            (JUMP_EQUAL, 0, 1, 1),  # SOCK_STREAM
            (RETURN, 0, 0, ALLOW),
            refuse,
        ]
    for number in sorted({**REFUSED, **({} if network else NETWORK)}.values()):
        code += [(JUMP_EQUAL, 0, 1, number), refuse]
    return [*code, (RETURN, 0, 0, ALLOW)]


def apply(*, network: bool) -> None:
    """Filter this process and all that descend from it.

    Raises:
        OSError: the kernel refuses.
    """
    if not supported():
        raise OSError(errno.ENOSYS, f"no system call filter for {platform.machine()}")
    code = program(network=network)
    instructions = (_Instruction * len(code))(*(_Instruction(*i) for i in code))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (
        (SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (SET_SECCOMP, FILTER_MODE, ctypes.byref(_Program(len(code), instructions)), 0, 0),
    ):
        if libc.prctl(*call) != 0:
            code_ = ctypes.get_errno()
            raise OSError(code_, f"seccomp: {os.strerror(code_)}")


def _argument(index: int) -> int:
    return 16 + 8 * index
