#!/usr/bin/env python3
"""Makes vectors.json: messages signed by programs that share nothing with the code under test.

    pip install cryptography && python3 make_vectors.py > vectors.json

HMACs are by `openssl dgst -sha256 -mac HMAC`, ed25519 signatures (v1a) by Python's cryptography,
and compared with those of `openssl pkeyutl -sign -rawin`. The file that is here was made with
OpenSSL 3.0.19 and cryptography 48.0.0; the output is the same each time. What is signed is as
these pages say it:

    Standard Webhooks  github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md
    Stripe             docs.stripe.com/webhooks, "Verify webhook signatures manually"
    GitHub             docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries

Bodies are in base64: GitHub's need not be text. The keys of v1a are those of RFC 8032, 7.1.
"""
import base64, hashlib, json, os, subprocess, tempfile

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

NOW = 1700000000


def b64(data):
    return base64.b64encode(data).decode()


def openssl(*args, stdin=b""):
    return subprocess.run(["openssl", *args], input=stdin, capture_output=True, check=True).stdout


def mac(key, text):
    return openssl("dgst", "-sha256", "-mac", "HMAC", "-macopt", "hexkey:" + key.hex(), "-binary", stdin=text)


def ed25519(seed, text):
    """The public key and the signature, by two programs that must agree."""
    private = Ed25519PrivateKey.from_private_bytes(seed)
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    signature = private.sign(text)
    with tempfile.TemporaryDirectory() as d:
        key, data = os.path.join(d, "key.der"), os.path.join(d, "text")
        with open(key, "wb") as f:
            f.write(bytes.fromhex("302e020100300506032b657004220420") + seed)
        with open(data, "wb") as f:
            f.write(text)
        assert openssl("pkeyutl", "-sign", "-rawin", "-keyform", "DER", "-inkey", key, "-in", data) == signature
    return public, signature


def some(name, size):
    """Bytes that look random and are the same each time."""
    return hashlib.shake_256(name.encode()).digest(size)


def padded(size, **members):
    """A JSON object of size bytes, or as short as it can be."""
    text = json.dumps({**members, "data": ""}, ensure_ascii=False)
    pad = max(0, size - len(text.encode()))
    return json.dumps({**members, "data": "x" * pad}, ensure_ascii=False).encode()


vectors = []


def add(provider, name, secrets, header, body, id, type, private=()):
    vectors.append({
        "name": name, "provider": provider, "secrets": list(secrets), "private": list(private), "now": NOW,
        "header": header, "body": b64(body), "id": id, "type": type,
    })


# Around a block of SHA-256, and a body that is no small one.
SIZES = [0, 63, 64, 65, 119, 120, 128, 1000, 4096]

# Standard Webhooks, v1a: four keys of RFC 8032, 7.1 (TEST 1, 2, 3, SHA(abc)).
seeds = [
    ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
    ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb", "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"),
    ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7", "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"),
    ("833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42", "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf"),
]
for n, (seed, want) in enumerate(seeds):
    seed = bytes.fromhex(seed)
    for size in SIZES:
        id, body = f"msg_{n}_{size}", padded(size, type="invoice.paid", name="J\u00f6rg")
        public, signature = ed25519(seed, f"{id}.{NOW}.".encode() + body)
        assert public.hex() == want
        header = {"webhook-id": id, "webhook-timestamp": str(NOW), "webhook-signature": "v1a," + b64(signature)}
        add("standard-webhooks", f"v1a, key {n}, {len(body)} bytes", ["whpk_" + b64(public)], header, body, id, "invoice.paid", ["whsk_" + b64(seed)])

# And v1, with secrets of every size that the specification allows at its ends.
for size in (24, 32, 63, 64):
    for length in SIZES:
        key, id, body = some(f"v1 {size}", size), f"msg_{size}_{length}", padded(length, type="invoice.paid", name="J\u00f6rg")
        signature = mac(key, f"{id}.{NOW}.".encode() + body)
        header = {"webhook-id": id, "webhook-timestamp": str(NOW), "webhook-signature": "v1," + b64(signature)}
        secret = "whsec_" + b64(key)
        add("standard-webhooks", f"v1, secret of {size}, {len(body)} bytes", [secret], header, body, id, "invoice.paid", [secret])

# Stripe: the secret as it is shown, whsec_ included; one and two signatures.
for length in SIZES:
    old, new = "whsec_" + some("old", 24).hex(), "whsec_" + some("new", 24).hex()
    id, body = f"evt_{length}", padded(length, id=f"evt_{length}", object="event", type="charge.succeeded")
    one, two = (mac(s.encode(), f"{NOW}.".encode() + body).hex() for s in (old, new))
    add("stripe", f"{len(body)} bytes", [old], {"Stripe-Signature": f"t={NOW},v1={one}"}, body, id, "charge.succeeded")
    add("stripe", f"{len(body)} bytes, rolled", [new], {"Stripe-Signature": f"t={NOW},v1={one},v1={two}"}, body, id, "charge.succeeded")

# GitHub: the vector of its page, and bodies of any bytes.
def github(name, secret, body):
    signature = mac(secret.encode(), body).hex()
    header = {"X-Hub-Signature-256": "sha256=" + signature, "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "X-GitHub-Event": "issues"}
    add("github", name, [secret], header, body, header["X-GitHub-Delivery"], "issues")
    return signature

published = github("published", "It's a Secret to Everybody", b"Hello, World!")
assert published == "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
for length in SIZES:
    github(f"{length} bytes", "hush \u00fc", some(f"body {length}", length))

print(json.dumps(vectors, indent=1))
