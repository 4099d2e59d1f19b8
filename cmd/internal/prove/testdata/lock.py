"""A mark under a lock: a crash between the effect and the mark doubles it."""
import os, time
from common import effect, redis, serve


def handle(id):
    key = os.environ["TEST_PREFIX"] + id
    while redis("SET", key + ":lock", "1", "NX", "PX", 500) != "OK":
        time.sleep(0.01)
    if redis("GET", key) is None:
        effect(id)
        time.sleep(0.02)  # what a real program does next
        redis("SET", key, "1", "EX", 3600)
    redis("DEL", key + ":lock")


serve(handle)
