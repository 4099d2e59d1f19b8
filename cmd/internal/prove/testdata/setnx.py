"""SET NX by hand: a crash between the key and the effect loses the message."""
import os, time
from common import effect, redis, serve


def handle(id):
    if redis("SET", os.environ["TEST_PREFIX"] + id, "1", "NX", "EX", 3600) == "OK":
        time.sleep(0.02)  # what a real program does first
        effect(id)


serve(handle)
