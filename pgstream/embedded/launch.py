"""The step between fork and exec of an embedded program: gives up root, and asks to die with the parent.

Owns: one exec. Run as a script, ``python -I -S launch.py PARENT SIGNAL UID GID CAPABILITY -- PROGRAM …``, never
imported by the server: a script instead of ``preexec_fn`` (unsafe with threads) and of setpriv(1) (not everywhere).
Must not know: pgstream; the standard library only. ``child.spawn`` is the other half. Start reading at ``main``.

UID -1 keeps the user. CAPABILITY is the number of one Linux capability to keep across the change of user, or -1.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG, PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 1, 28, 47, 2
SECBIT_NO_SETUID_FIXUP = 4
CAPABILITY_VERSION_3 = 0x20080522


def keep_across_setuid(libc: ctypes.CDLL) -> None:
    """Let the capabilities outlive the change of user, and count in access(2), with which initdb looks for postgres."""
    if libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0):
        sys.exit(f"could not keep capabilities: {os.strerror(ctypes.get_errno())}")


def keep_only(libc: ctypes.CDLL, capability: int) -> None:
    """Reduce the capabilities to one that survives exec of an ordinary program."""
    low, high = (1 << capability) & 0xFFFFFFFF, (1 << capability) >> 32
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(low, low, low, high, high, high)
    if libc.capset(header, sets) or libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0):
        sys.exit(f"could not keep capability {capability}: {os.strerror(ctypes.get_errno())}")


def main(argv: list[str]) -> None:
    """Prepare this process, then become the program."""
    parent, signal, uid, gid, capability = map(int, argv[:5])
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    if uid >= 0:
        if libc is not None and capability >= 0:
            keep_across_setuid(libc)
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        if libc is not None and capability >= 0:
            keep_only(libc, capability)
    if libc is not None:
        # After the change of user, which clears it.
        libc.prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent ended first")
    os.execv(argv[6], argv[6:])  # noqa: S606 - becoming the program is the point


if __name__ == "__main__":
    main(sys.argv[1:])
