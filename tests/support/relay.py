"""A bad network between two programs of this host, for tests. Bytes of TCP connections arrive late
but in order. Connections stall, break at any byte, or silently stop forwarding. The seed determines
which connection fails in which way after how many of its bytes. tests/support/storm_relay.h is the
same in C++. Uses the standard library only.

    with relay.Relay(to_port, delay_s=0.2, jitter_s=0.1, bytes_to_reset=200_000) as bad:
        bad.port             # connect there
        bad.silence("back")  # open connections forward nothing from the server any more
"""
import asyncio
import math
import random
import socket
import struct
import threading
import time


class Relay:
    def __init__(self, to_port, seed=1, delay_s=0.0, jitter_s=0.0, bytes_to_reset=0, bytes_to_stall=0, stall_s=0.0):
        """Each direction delays bytes by `delay_s` and up to `jitter_s` more. On average, each
        direction of a connection is reset after `bytes_to_reset` bytes and stalls for `stall_s`
        after `bytes_to_stall` bytes (0: never)."""
        self.to_port, self.seed, self.delay_s, self.jitter_s = to_port, seed, delay_s, jitter_s
        self.bytes_to_reset, self.bytes_to_stall, self.stall_s = bytes_to_reset, bytes_to_stall, stall_s
        self.connections = self.resets = self.stalls = self.bytes = 0
        self.silent = {"there": set(), "back": set()}  # the numbers of connections
        self.open = set()
        self.loop = asyncio.new_event_loop()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    def silence(self, way):
        """Silences one direction of the open connections: "there" is from the client to the server,
        "back" the opposite."""
        self.silent[way] |= set(self.open)

    def _run(self):
        self.loop.create_task(self._accept())
        self.loop.run_forever()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.listener.close()
        self.loop.close()

    async def _accept(self):
        while True:
            near, _ = await self.loop.sock_accept(self.listener)
            self.loop.create_task(self._connect(near))

    async def _connect(self, near):
        number, self.connections = self.connections, self.connections + 1
        far = socket.socket()
        tasks = []
        try:
            for end in (near, far):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self.loop.sock_connect(far, ("127.0.0.1", self.to_port))
            self.open.add(number)
            tasks = [self.loop.create_task(self._way(number, "there", near, far)),
                     self.loop.create_task(self._way(number, "back", far, near))]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        except (OSError, ConnectionError):
            for end in (near, far):  # close() then sends a reset
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        finally:
            self.open.discard(number)
            for task in tasks:
                task.cancel()
            near.close()
            far.close()

    async def _way(self, number, way, source, target):
        queue = asyncio.Queue(maxsize=64)
        reader = self.loop.create_task(self._read(number, way, source, queue))
        try:
            await self._pass_on(number, way, target, queue)
        finally:
            reader.cancel()

    async def _read(self, number, way, source, queue):
        chance = random.Random(f"{self.seed} {number} {way} time")
        newest_due = 0.0
        while True:
            try:
                data = await self.loop.sock_recv(source, 16384)
            except OSError:
                data = None
            newest_due = max(newest_due, time.monotonic() + self.delay_s + self.jitter_s * chance.random())
            if data and number in self.silent[way]:
                continue
            await queue.put((newest_due, data))
            if not data:
                return

    async def _pass_on(self, number, way, target, queue):
        chance = random.Random(f"{self.seed} {number} {way} bytes")

        def after(mean):
            return 1 + int(chance.expovariate(1 / mean)) if mean else math.inf

        to_reset, to_stall = after(self.bytes_to_reset), after(self.bytes_to_stall)
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0, due - time.monotonic()))
            if data is None:
                raise ConnectionResetError
            if not data:
                if number not in self.silent[way]:
                    target.shutdown(socket.SHUT_WR)
                return
            while data and number not in self.silent[way]:
                part = data[:min(len(data), to_reset, to_stall)]
                await self.loop.sock_sendall(target, part)
                data = data[len(part):]
                self.bytes += len(part)
                to_reset, to_stall = to_reset - len(part), to_stall - len(part)
                if to_reset == 0:
                    self.resets += 1
                    raise ConnectionResetError
                if to_stall == 0:
                    self.stalls += 1
                    to_stall = after(self.bytes_to_stall)
                    await asyncio.sleep(self.stall_s)
