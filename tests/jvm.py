"""What a running JVM tells about itself, through HotSpot's attach door: no JDK, no agent, no port of its own.

The door is a Unix socket that the JVM opens when a file ``.attach_pid<pid>`` lies in its folder and it gets SIGQUIT.
A command is answered as text: ``jcmd`` with a diagnostic command, ``threaddump``, ``inspectheap``.
Start reading at ``Jvm.live``.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from pathlib import Path

_ROW = re.compile(r"\s*\d+:\s+(\d+)\s+(\d+)\s+(\S+)")
_PATIENCE_S = 30
_GENERATED = re.compile(r"\$\$Lambda.*|(?<=Specific).*|0x[0-9a-f]+|\d{2,}")


class Jvm:
    """One process. Errors: OSError when it is gone, TimeoutError when it does not open the door."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.socket = Path(f"/tmp/.java_pid{pid}")

    def ask(self, command: str, *args: str) -> str:
        if not self.socket.exists():
            self._knock()
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(_PATIENCE_S * 4)
            s.connect(str(self.socket))
            words = ["1", command, *args, *[""] * (3 - len(args))]
            s.sendall(b"".join(w.encode() + b"\0" for w in words))
            out = b"".join(iter(lambda: s.recv(65536), b"")).decode(errors="replace")
        code, _, text = out.partition("\n")
        if code != "0":
            raise OSError(f"{command} {args}: {text}")
        return text

    def _knock(self) -> None:
        note = Path(f"/proc/{self.pid}/cwd/.attach_pid{self.pid}")
        note.touch()
        try:
            os.kill(self.pid, signal.SIGQUIT)
            end = time.monotonic() + _PATIENCE_S
            while not self.socket.exists():
                if time.monotonic() > end:
                    raise TimeoutError(f"JVM {self.pid} opens no door")
                time.sleep(0.05)
        finally:
            note.unlink(missing_ok=True)

    def live(self) -> dict[str, tuple[int, int]]:
        """By class: how many objects are in use, after a full collection, and their bytes. Classes that code is
        generated for have one name together.
        """
        for _ in range(2):  # what a reference queue has told of goes with the next
            self.ask("jcmd", "GC.run")
            time.sleep(0.5)
        found: dict[str, tuple[int, int]] = {}
        for line in self.ask("inspectheap", "-live").splitlines():
            if row := _ROW.match(line):
                name = _GENERATED.sub("", row[3])
                count, size = found.get(name, (0, 0))
                found[name] = count + int(row[1]), size + int(row[2])
        return found

    def threads(self) -> list[str]:
        """Names of Java's threads; numbers in them left out."""
        return [re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "N", n) for n in
                re.findall(r'^"(.*?)" #', self.ask("threaddump"), re.M)]  # fmt: skip

    def classes(self) -> int:
        """How many are loaded: those that code is generated for come and go."""
        return int(re.findall(r"Total.*?(\d+)", self.ask("jcmd", "VM.metaspace basic").replace(",", "") or "0")[0] or 0)
