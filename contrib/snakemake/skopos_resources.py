"""Asks a Skopos hub what a rule of Snakemake should get.

Copy this file beside the Snakefile:

    from skopos_resources import memory_mb

    rule align:
        resources:
            mem_mb=memory_mb("align", otherwise=4000)
        retries: 1

The first attempt gets the proposal, a later one the most that was ever needed. Without an answer within the timeout, the
rule gets `otherwise`, twice as much for each further attempt. The hub is SKOPOS_HUB, by default http://127.0.0.1:7470, and the
token is in the file SKOPOS_TOKEN_FILE, if that is set. With a token the hub is asked by https, or at an address of the loopback.
"""

import ipaddress
import json
import math
import os
import urllib.error
import urllib.parse
import urllib.request
import warnings

TIMEOUT_SECONDS = 2.0
HEADROOM = 1.1
_MAX_ANSWER_BYTES = 1 << 16
_MIB = 1 << 20

_known = {}

# A proxy would see the token.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def estimate(name, resource="memory", max_risk=0.05):
    """Returns the proposal for a class as a dict, or None. The hub is asked once for each class and process."""
    key = (name, resource, max_risk)
    if key not in _known:
        _known[key] = _ask({"class": name, "resource": resource, "max_risk": max_risk})
    return _known[key]


def memory_mb(name, otherwise, max_risk=0.05):
    """Returns a function for `resources: mem_mb=…`."""

    def chosen(wildcards, attempt=1):
        proposal = estimate(name, "memory", max_risk)
        if proposal is None:
            return int(otherwise) * 2 ** (attempt - 1)
        first, most = proposal["allocation"], proposal["maximum"]
        needed = first if attempt == 1 else max(most, first) * 2 ** (attempt - 2)
        return max(1, math.ceil(needed * HEADROOM / _MIB))

    return chosen


def _hides_token(hub):
    """Returns true if a token on the way to this URL is not in clear text, or stays on this machine. A name may be elsewhere."""
    try:
        url = urllib.parse.urlsplit(hub)
        return url.scheme == "https" or (url.scheme == "http" and ipaddress.ip_address(url.hostname or "").is_loopback)
    except ValueError:
        return False


def _ask(parameters):
    hub = os.environ.get("SKOPOS_HUB", "http://127.0.0.1:7470")
    url = f"{hub}/api/v1/estimate?{urllib.parse.urlencode(parameters)}"
    token_file = os.environ.get("SKOPOS_TOKEN_FILE")
    if token_file and not _hides_token(hub):
        warnings.warn(f"a token is sent by https, or to an address such as 127.0.0.1; {hub} is not asked", stacklevel=2)
        return None
    try:
        request = urllib.request.Request(url)
        if token_file:
            with open(token_file, encoding="ascii") as file:
                # Not sent on to the place that a redirect names.
                request.add_unredirected_header("Authorization", f"Bearer {file.read(8192).strip()}")
        with _opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            proposal = json.loads(answer.read(_MAX_ANSWER_BYTES))
        numbers = [float(proposal[name]) for name in ("allocation", "maximum")]
        return proposal if all(math.isfinite(n) and n > 0 for n in numbers) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
