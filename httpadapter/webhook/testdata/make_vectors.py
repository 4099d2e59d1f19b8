#!/usr/bin/env python3
"""Makes vectors.json: messages as the providers' pages describe them, signed with Python's
hmac and with openssl (ed25519). Usage: python3 make_vectors.py > vectors.json

Those marked "published" have the signature of a provider's own page or library, which must
come out here as well.
"""
import base64, hashlib, hmac, json, os, subprocess, tempfile

def mac(secret, text):
    return hmac.new(secret, text, hashlib.sha256).digest()

def b64(data):
    return base64.b64encode(data).decode()

def openssl(*args, stdin=b""):
    return subprocess.run(["openssl", *args], input=stdin, capture_output=True, check=True).stdout

def ed25519(seed, text):
    """The public key and the signature, by openssl."""
    with tempfile.TemporaryDirectory() as d:
        key, data = os.path.join(d, "key.der"), os.path.join(d, "text")
        with open(key, "wb") as f:
            f.write(bytes.fromhex("302e020100300506032b657004220420") + seed)
        with open(data, "wb") as f:
            f.write(text)
        public = openssl("pkey", "-inform", "DER", "-in", key, "-pubout", "-outform", "DER")[-32:]
        signature = openssl("pkeyutl", "-sign", "-rawin", "-keyform", "DER", "-inkey", key, "-in", data)
        return public, signature

vectors = []

def add(name, provider, secrets, now, header, body, id, type="", sent=0, private=None):
    vectors.append({"name": name, "provider": provider, "secrets": secrets, "private": private or [], "now": now,
                    "header": header, "body": body, "id": id, "type": type, "sent": sent})

# Standard Webhooks: the vector of the project's libraries, then both versions at once.
key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
body = '{"test": 2432232314}'
id, at = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
sig = b64(mac(key, f"{id}.{at}.{body}".encode()))
assert sig == "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
add("published", "standard-webhooks", ["whsec_" + b64(key)], at, {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": "v1," + sig}, body, id, "", at, ["whsec_" + b64(key)])

body, at = '{"type":"invoice.paid","data":{"name":"J\u00f6rg"}}', 1700000000
seed = bytes(range(32))
text = f"evt_1.{at}.{body}".encode()
public, signature = ed25519(seed, text)
whsk, whpk = "whsk_" + b64(seed + public), "whpk_" + b64(public)
h = lambda s: {"webhook-id": "evt_1", "webhook-timestamp": str(at), "webhook-signature": s}
add("v1a", "standard-webhooks", [whpk], at, h("v1a," + b64(signature)), body, "evt_1", "invoice.paid", at, [whsk])
add("v1a from its seed", "standard-webhooks", [whpk], at, h("v1a," + b64(signature)), body, "evt_1", "invoice.paid", at, ["whsk_" + b64(seed)])
old, new = bytes(range(24)), bytes(range(100, 164))
both = "v1," + b64(mac(old, text)) + " v1," + b64(mac(new, text)) + " v1a," + b64(signature)
whsec = lambda k: "whsec_" + b64(k)
for name, secrets in [("old", [whsec(old)]), ("new", [whsec(new)]), ("public", [whpk]), ("all", [whpk, whsec(new), whsec(old)])]:
    add("rotation, receiver knows " + name, "standard-webhooks", secrets, at, h(both), body, "evt_1", "invoice.paid", at, [whsec(old), whsec(new), whsk])
add("300 s late", "standard-webhooks", [whsec(old)], at + 300, h("v1," + b64(mac(old, text))), body, "evt_1", "invoice.paid", at)
add("300 s early", "standard-webhooks", [whsec(old)], at - 300, h("v1," + b64(mac(old, text))), body, "evt_1", "invoice.paid", at)
add("unknown version beside", "standard-webhooks", [whsec(old)], at, h("v2,AAAA v1," + b64(mac(old, text))), body, "evt_1", "invoice.paid", at)

# Stripe.
body = '{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","object":"event","type":"charge.succeeded","pending_webhooks":1}'
s1, s2 = "whsec_first", "whsec_second"
v1 = lambda s: mac(s.encode(), f"{at}.{body}".encode()).hex()
add("one secret", "stripe", [s1], at, {"Stripe-Signature": f"t={at},v1={v1(s1)},v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"}, body, "evt_1NG8Du2eZvKYlo2CUI79vXWy", "charge.succeeded", at)
for name, s in [("old", s1), ("new", s2)]:
    add("rolled, receiver knows " + name, "stripe", ["whsec_other", s], at + 299, {"Stripe-Signature": f"t={at},v1={v1(s1)},v1={v1(s2)}"}, body, "evt_1NG8Du2eZvKYlo2CUI79vXWy", "charge.succeeded", at)

# GitHub: the vector of "Validating webhook deliveries".
sig = mac(b"It's a Secret to Everybody", b"Hello, World!").hex()
assert sig == "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
github = {"X-Hub-Signature-256": "sha256=" + sig, "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "X-GitHub-Event": "issues"}
add("published", "github", ["another", "It's a Secret to Everybody"], at, github, "Hello, World!", github["X-GitHub-Delivery"], "issues")

# Shopify.
body = '{"id":820982911946154508}'
add("one secret", "shopify", ["hush"], at, {"X-Shopify-Hmac-SHA256": b64(mac(b"hush", body.encode())), "X-Shopify-Event-Id": "98880550-7158-44d4-b7cd-2c97c8a091b5", "X-Shopify-Topic": "orders/create"}, body, "98880550-7158-44d4-b7cd-2c97c8a091b5", "orders/create")

# Slack: the signature of "Verifying requests from Slack" is a slash command's, and is kept
# by the test of those; this is an event.
slack = b"8f742231b10e8888abcd99yyyzzz85a5"
command = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
sig = mac(slack, f"v0:1531420618:{command}".encode()).hex()
assert sig == "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
body = '{"type":"event_callback","event_id":"Ev9UQ52YNA","event":{"type":"app_mention"}}'
add("event", "slack", [slack.decode()], at, {"X-Slack-Signature": "v0=" + mac(slack, f"v0:{at}:{body}".encode()).hex(), "X-Slack-Request-Timestamp": str(at)}, body, "Ev9UQ52YNA", "app_mention", at)

print(json.dumps(vectors, indent=1))
