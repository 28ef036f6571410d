"""Two networks with nothing between them but this process: it passes packets from one to the other, slowly, out of
order, not all of them, or none.

Each is a network namespace of its own (network_namespaces(7)) with a TUN device in it, whose other end is here. So what
is tried is the kernel's own TCP on a bad network, without netem, which not every kernel has. It takes root, and
/dev/net/tun.
"""

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from multiprocessing import forkserver

from attrs import define, field

ADDRESSES = "192.0.2.1", "192.0.2.2"        # RFC 5737
_NEW_NETWORK = 0x40000000                   # CLONE_NEWNET, of sched.h
_SET_DEVICE, _TUN, _PLAIN = 0x400454ca, 0x0001, 0x1000      # TUNSETIFF, IFF_TUN, IFF_NO_PI, of linux/if_tun.h
_SET_ADDRESS, _SET_MASK, _SET_FLAGS, _UP = 0x8916, 0x891c, 0x8914, 0x0041      # netdevice(7): IFF_UP, IFF_RUNNING
_LARGEST = 1 << 16
_HERE = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)


@define(eq=False)
class Network:
    """One of them. What a thread opens, or starts, while it is `entered` is there for good."""

    address: str
    handle: int = field(init=False)         # of the name space,
    device: int = field(init=False)         # and of our end of its device

    def __attrs_post_init__(self) -> None:
        with _coming_back():
            _call(_libc.unshare(_NEW_NETWORK))
            self.handle = os.open(_HERE, os.O_RDONLY)
            self.device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(self.device, _SET_DEVICE, struct.pack("16sH22x", b"way", _TUN | _PLAIN))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
                for call, address in ((_SET_ADDRESS, self.address), (_SET_MASK, "255.255.255.0")):
                    fcntl.ioctl(asked, call, struct.pack("16sHH4s8x", b"way", socket.AF_INET, 0,
                                                         socket.inet_aton(address)))
                for device in (b"lo", b"way"):
                    fcntl.ioctl(asked, _SET_FLAGS, struct.pack("16sH22x", device, _UP))

    @property
    def path(self) -> str:
        """For `enter` in another process."""
        return f"/proc/{os.getpid()}/fd/{self.handle}"

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is there, and the processes that it starts."""
        with _coming_back():
            _call(_libc.setns(self.handle, _NEW_NETWORK))
            yield

    def close(self) -> None:
        """It goes when its last process has ended."""
        os.close(self.device)
        os.close(self.handle)


@define
class Way:
    """From one network to the other: `is_cut`, nothing arrives; `lost` is the share of packets that do not arrive,
    `slowest` the seconds that one takes at most, each its own time. `overtaken` counts those that a later one has
    overtaken."""

    is_cut: bool = False
    lost: float = 0.0
    slowest: float = 0.0
    overtaken: int = 0


@define(eq=False)
class TwoNetworks:
    """Both, and the `ways` from the first one to the second and back. They are there from entry to exit."""

    networks: tuple[Network, Network] = field(init=False)
    ways: tuple[Way, Way] = field(factory=lambda: (Way(), Way()))
    _known: set[frozenset[bytes]] = field(factory=set)          # connections: the ports of both ends,
    _forgotten: set[frozenset[bytes]] = field(factory=set)      # and those of which nothing arrives any more
    _choose: random.Random = field(factory=lambda: random.Random(1))
    _under_way: list[tuple[float, int, int, bytes]] = field(factory=list)       # when it arrives, its number, where, it
    _newest: list[int] = field(factory=lambda: [0, 0])
    _stop: tuple[int, int] = field(factory=os.pipe)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "TwoNetworks":
        if os.geteuid():
            raise AssertionError("this test makes networks of its own (network_namespaces(7)), which root alone may")
        forkserver.ensure_running()     # else it would begin in one of them, and all later tests' servers with it
        self.networks = Network(ADDRESSES[0]), Network(ADDRESSES[1])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._stop[1])
        if self._thread is not None:
            self._thread.join()
        os.close(self._stop[0])
        for network in self.networks:
            network.close()

    def set(self, *, is_cut: bool = False, lost: float = 0.0, slowest: float = 0.0) -> None:
        """Both ways, for packets that come from now on; without arguments all is well again."""
        for way in self.ways:
            way.is_cut, way.lost, way.slowest = is_cut, lost, slowest

    def forget(self) -> None:
        """Nothing of the connections that there are arrives any more, not even an RST, as behind a firewall that has
        begun anew: each end has to find out by itself. New ones are as usual."""
        self._forgotten |= self._known

    def _run(self) -> None:
        devices, numbers = [network.device for network in self.networks], itertools.count(1)
        look = select.poll()
        for handle in (*devices, self._stop[0]):
            look.register(handle, select.POLLIN)
        while True:
            wait = max(0.0, self._under_way[0][0] - time.monotonic()) * 1000 + 1 if self._under_way else None
            found = {handle for handle, _ in look.poll(wait)}
            if self._stop[0] in found:
                return
            for source, device in enumerate(devices):
                if device in found:
                    self._take(source, device, numbers)
            while self._under_way and self._under_way[0][0] <= time.monotonic():
                self._pass(*heapq.heappop(self._under_way)[1:])

    def _take(self, source: int, device: int, numbers: "itertools.count[int]") -> None:
        way = self.ways[source]
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = os.read(device, _LARGEST)
                if self._arrives(way, packet):
                    arrives = time.monotonic() + self._choose.uniform(0.0, way.slowest)
                    heapq.heappush(self._under_way, (arrives, next(numbers), source, packet))

    def _arrives(self, way: Way, packet: bytes) -> bool:
        self._known.add(ports := _ports(packet))
        return not (way.is_cut or ports in self._forgotten or way.lost and self._choose.random() < way.lost)

    def _pass(self, number: int, source: int, packet: bytes) -> None:
        way = self.ways[source]
        if way.is_cut:
            return
        way.overtaken += number < self._newest[source]
        self._newest[source] = max(self._newest[source], number)
        with contextlib.suppress(BlockingIOError):      # it is full: a network may lose packets
            os.write(self.networks[1 - source].device, packet)


def _ports(packet: bytes) -> frozenset[bytes]:
    """Those of a TCP segment over IPv4 (RFC 791 §3.1, RFC 9293 §3.1); of any other packet none."""
    if packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
        return frozenset()
    at = (packet[0] & 15) * 4
    return frozenset((packet[at:at + 2], packet[at + 2:at + 4]))


def enter(path: str) -> None:
    """This process is in that network from now on: see `Network.path`. For one with a single thread."""
    handle = os.open(path, os.O_RDONLY)
    _call(_libc.setns(handle, _NEW_NETWORK))
    os.close(handle)


@contextlib.contextmanager
def _coming_back() -> Iterator[None]:
    """This thread is in its own network after the block."""
    home = os.open(_HERE, os.O_RDONLY)
    try:
        yield
    finally:
        _call(_libc.setns(home, _NEW_NETWORK))
        os.close(home)


def _call(found: int) -> None:
    """Raises OSError when a call of the C library has failed."""
    if found:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
