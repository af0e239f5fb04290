"""A slow and lossy cable between two network interfaces, for kernels without netem.

Usage: slow_cable.py INTERFACE INTERFACE MILLISECONDS LOSS

Every frame that comes out of one interface goes into the other, MILLISECONDS later; a share LOSS
of them (0.01: one in a hundred) is lost. Needs the right to open packet sockets. Runs until it is
killed; says "ready" when frames pass.
"""

import collections
import random
import select
import socket
import sys
import time

# linux/if_packet.h. Frames come with their offload header: checksums and segments that the kernel
# has left to the device stay as they are.
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
ETH_P_ALL = 3
LARGEST_FRAME = 70000


def open_interface(name):
    result = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    result.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    result.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    result.bind((name, ETH_P_ALL))
    return result


def main():
    ends = [open_interface(name) for name in sys.argv[1:3]]
    delay = float(sys.argv[3]) / 1000
    loss = float(sys.argv[4])
    chance = random.Random(1)
    on_its_way = collections.deque()  # (when it arrives, where, frame): the oldest first
    print("ready", flush=True)
    while True:
        pause = max(0, on_its_way[0][0] - time.monotonic()) if on_its_way else None
        for near in select.select(ends, [], [], pause)[0]:
            frame = near.recv(LARGEST_FRAME)
            far = ends[1 - ends.index(near)]
            if chance.random() >= loss:
                on_its_way.append((time.monotonic() + delay, far, frame))
        while on_its_way and on_its_way[0][0] <= time.monotonic():
            _, far, frame = on_its_way.popleft()
            try:
                far.send(frame)
            except OSError:  # the interface is down: the frame is lost
                pass


main()
