"""Loaded into every Python program that sandbox-emulator starts.

Requests of httpx, which the official client uses, to the platform's names lead
to the emulator, which tells by the Host header what was meant.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import urllib.parse

_EMULATOR = urllib.parse.urlsplit(os.environ["VERCEL_SANDBOX_BASE_URL"]) if "VERCEL_SANDBOX_BASE_URL" in os.environ else None


def _is_platform(host):
    return host in ("vercel.com", "api.vercel.com") or host.endswith(".vercel.run")


def _redirect(request):
    host = request.url.host
    if _is_platform(host):
        request.headers["Host"] = host
        request.url = request.url.copy_with(scheme="http", host=_EMULATOR.hostname, port=_EMULATOR.port)


def _patch(httpx):
    send, send_async = httpx.Client.send, httpx.AsyncClient.send

    def client_send(self, request, **options):
        _redirect(request)
        return send(self, request, **options)

    async def async_client_send(self, request, **options):
        _redirect(request)
        return await send_async(self, request, **options)

    httpx.Client.send, httpx.AsyncClient.send = client_send, async_client_send


class _Loader(importlib.abc.Loader):
    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        _patch(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds httpx as always, and changes it once it is loaded."""

    def find_spec(self, name, path, target=None):
        if name != "httpx":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


if _EMULATOR is not None:
    sys.meta_path.insert(0, _Finder())

# This file stands in the way of one that the machine has; that runs as well.
_here = os.path.dirname(os.path.abspath(__file__))
_others = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
