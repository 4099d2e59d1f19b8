"""An effect that is idempotent by itself: a row whose primary key is the message's id."""
import os, sqlite3
from common import serve


def handle(id):
    with sqlite3.connect(os.environ["TEST_DB"], timeout=30) as db:
        db.execute("INSERT INTO payments (id, amount) VALUES (?, 100) "
                   "ON CONFLICT (id) DO UPDATE SET amount = excluded.amount", (id,))


with sqlite3.connect(os.environ["TEST_DB"], timeout=30) as db:
    db.execute("CREATE TABLE IF NOT EXISTS payments (id TEXT PRIMARY KEY, amount INTEGER)")
serve(handle)
