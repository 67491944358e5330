"""Verifies a webhook by the reference implementation: verify.py SECRET, headers and body as JSON on stdin.

Exits 1 when the signature, the id or the time is refused.
"""

import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

given = json.load(sys.stdin)
try:
    Webhook(sys.argv[1]).verify(given["body"], given["headers"])
except WebhookVerificationError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
