"""`siftline serve`: runs the broker over HTTP, with its console."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import ipaddress
import random
import resource
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Final

from siftline.cli.match import count
from siftline.cli.problems import OK, CannotRunError, say, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from siftline.broker.broker import Broker
    from siftline.broker.limits import Limits
    from siftline.server.run import Server

NAME: Final = "serve"
SUMMARY: Final = "run the broker: subscribe, publish and get notifications over HTTP, with a console"
DETAILS: Final = """\
Subscriptions are kept in the file of --store, notifications in FILE-notifications. Acknowledged requests are on
the disk. Publishing, subscribing and administration need API keys (--new-key); until the first key is made for a
role, local requests need none. Keys and tickets are stored as hashes and shown only once.

exit status: 0 stopped by a signal, without losses; 2 could not run
"""
EXAMPLES: Final = """\
examples:
  siftline serve --demo
  siftline serve --store subscriptions.db --port 8080
  siftline serve --store subscriptions.db --new-key admin
  siftline serve --store subscriptions.db --new-key subscribe:ann
  siftline serve --store subscriptions.db --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
"""

_DEMO_SUBSCRIPTIONS: Final = 1000
_DEMO_SECONDS: Final = 0.5
# The limit of open files that the server asks for.
_MOST_FILES: Final = 65_536
# How long a computing thread runs before another one may: the event loop waits for all of them.
_SWITCH_SECONDS: Final = 0.001


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    parser.add_argument("--store", metavar="FILE", help="the file of subscriptions, which is made if it does not exist")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="the port; 0 means any free one (8080)")
    parser.add_argument("--index", default="sift", help="the index of the engine (sift)")
    parser.add_argument(
        "--demo", action="store_true", help="add sample subscriptions, and publish product events continuously"
    )
    parser.add_argument(
        "--match-elsewhere",
        action="store_true",
        help="keep events for a cluster that matches them, and deliver its matches",
    )
    keys = parser.add_argument_group("keys")
    keys.add_argument("--new-key", metavar="ROLE", help="make a key: admin, publish or subscribe:OWNER; then exit")
    keys.add_argument("--list-keys", action="store_true", help="list all keys without their secrets; then exit")
    keys.add_argument("--revoke-key", metavar="KEY", help="revoke a key; then exit")
    keys.add_argument(
        "--open", metavar="ROLE", action="append", default=[], choices=("publish", "subscribe"),
        help="a role that needs no key from anywhere: publish or subscribe",
    )  # fmt: skip
    tls = parser.add_argument_group("TLS")
    tls.add_argument("--tls-cert", metavar="FILE", help="the certificate, with its chain")
    tls.add_argument("--tls-key", metavar="FILE", help="the key of the certificate, if it is in another file")
    tls.add_argument("--tls-ca", metavar="FILE", help="clients need a certificate of this authority")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-body", metavar="BYTES", type=count, help="the size of a request (16777216)")
    limits.add_argument("--max-expression", metavar="BYTES", type=count, help="the size of an expression (65536)")
    limits.add_argument("--max-per-owner", metavar="N", type=count, help="subscriptions of one owner (10000)")
    limits.add_argument("--publish-rate", metavar="N", type=float, help="requests per second of one client (no limit)")
    limits.add_argument("--subscribe-rate", metavar="N", type=float, help="requests per second of one client (100)")
    limits.add_argument("--max-connections", metavar="N", type=count, help="open connections (16000)")
    limits.add_argument(
        "--max-per-address", metavar="N", type=count, help="connections from one address, such as a proxy's (4000)"
    )
    limits.add_argument("--log-events", metavar="N", type=count, help="events that the log keeps for streams (100000)")
    limits.add_argument(
        "--log-bytes", metavar="N", type=count, help="bytes of these events and their matches (268435456)"
    )
    limits.add_argument(
        "--private-webhooks", action="store_true", help="webhooks may go to private and loopback addresses"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal comes, or manage keys."""
    if args.store is None and not args.demo:
        raise CannotRunError("--store FILE is needed (or --demo)")
    if args.new_key or args.list_keys or args.revoke_key:
        return _keys(args)
    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        raise CannotRunError("the server needs more packages: pip install 'siftline[server]'")
    with _place(args) as path:
        return _serve(args, path)


def _keys(args: argparse.Namespace) -> int:
    from siftline.broker.keys import Keys
    from siftline.storage.store import Store

    if args.store is None:
        raise CannotRunError("keys are kept in a store: --store FILE is needed")
    # A running server sees these changes within a second.
    is_looking = not (args.new_key or args.revoke_key)
    with Store(args.store, is_checked=False, is_read_only=is_looking, is_guest=not is_looking) as store:
        keys = Keys(store)
        if args.new_key:
            role, _, owner = args.new_key.partition(":")
            show(keys.add(role, owner or None))
            say("this key is not shown again: keep it")
        elif args.revoke_key:
            keys.revoke(args.revoke_key)
        else:
            for key in keys.listed():
                show(f"{key.id}  {key.role}{f':{key.owner}' if key.owner else ''}")
    return OK


@contextlib.contextmanager
def _place(args: argparse.Namespace) -> Iterator[str]:
    """Yield the path of the store; a demo without --store has a temporary one."""
    if args.store is not None:
        yield args.store
        return
    with tempfile.TemporaryDirectory(prefix="siftline-") as folder:
        yield f"{folder}/subscriptions.db"


def _serve(args: argparse.Namespace, path: str) -> int:
    from siftline.broker.broker import Broker

    _allow_many_files()
    options = {"allow_private": args.private_webhooks, "matches_here": not args.match_elsewhere}
    with Broker(path, index=args.index, limits=_limits(args), **options) as broker:
        server = _server(args, broker)
        broker.warm_up()
        sys.setswitchinterval(_SWITCH_SECONDS)
        _freeze_old_objects()
        if not _is_loopback(args.host) and not broker.keys.listed():
            say("there is no key yet: other machines can only reach /healthz (--new-key makes a key)")
        elif not broker.keys.has_role("admin") and not args.quiet and not args.demo:
            say("there is no admin key: everybody on this machine, also a proxy, has full access (--new-key makes one)")
        stop = threading.Event()
        threading.Thread(target=_announce, args=(server, stop), daemon=True).start()
        demo = threading.Thread(target=_publish_products, args=(broker, stop), daemon=True)
        if args.demo:
            demo.start()
        # uvicorn raises the signal again after it has stopped gracefully.
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            server.run()
        stop.set()
        if args.demo:
            demo.join()
        if not server.started:
            raise CannotRunError(f"cannot listen on {args.host}:{args.port}")
    if not args.quiet:
        say("stopped")
    return OK


def _allow_many_files() -> None:
    """Raise the limit of open files: each connection is one, and the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or soft < hard):
        most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _freeze_old_objects() -> None:
    """Exclude all existing objects from garbage collection.

    The engine, kernels and libraries have very many permanent objects. Traversing them took 100 ms of processor time
    (now 7 ms) every few seconds, during which no request was answered.
    """
    gc.collect()
    gc.freeze()


def _server(args: argparse.Namespace, broker: Broker) -> Server:
    from siftline.server.run import Server, Tls

    if args.tls_cert is None and (args.tls_key or args.tls_ca):
        raise CannotRunError("--tls-key and --tls-ca need --tls-cert")
    tls = None if args.tls_cert is None else Tls(args.tls_cert, args.tls_key, args.tls_ca)
    try:
        return Server(broker, host=args.host, port=args.port, tls=tls, is_open=args.open)
    except ImportError as error:
        raise CannotRunError(f"the server needs more packages: pip install 'siftline[server]' ({error})") from None


def _limits(args: argparse.Namespace) -> Limits:
    from siftline.broker.limits import Limits

    given = {
        "body_bytes": args.max_body,
        "expression_bytes": args.max_expression,
        "subscriptions_per_owner": args.max_per_owner,
        "publishes_per_second": args.publish_rate,
        "subscribes_per_second": args.subscribe_rate,
        "connections": args.max_connections,
        "connections_per_address": args.max_per_address,
        "log_events": args.log_events,
        "log_bytes": args.log_bytes,
    }
    return Limits(**{name: value for name, value in given.items() if value is not None})


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _announce(server: Server, stop: threading.Event) -> None:
    """Print the URL of the console once the server listens."""
    while not server.started:
        if stop.wait(0.02):
            return
    show(f"{server.url}/")


def _publish_products(broker: Broker, stop: threading.Event) -> None:
    """Add sample subscriptions, and publish products until the server stops."""
    from siftline.server.sample_shop import product, subscription

    chance = random.Random(1)
    missing = _DEMO_SUBSCRIPTIONS - len(broker.engine)
    with broker.store.batch() as batch:
        for n in range(missing):
            batch.add(subscription(chance), f"demo-{n}", owner=f"customer-{n % 20}")
    broker.follow()
    while not stop.wait(_DEMO_SECONDS):
        broker.publish_many([product(chance) for _ in range(chance.randrange(1, 6))])
