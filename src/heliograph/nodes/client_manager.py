"""The client manager: holds client connections and their sessions, and nothing that must survive it (M1).

A shell: commands from clients go through their session to the bus, commands from the bus to the session they
concern.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec

from heliograph import __version__
from heliograph.admin.rest.answering import Answering
from heliograph.admin.subjects import (
    ASK_NODES,
    CERTIFICATE_RELOAD,
    CONFIGURATION,
    OF_USERS,
    OWN_SUBSCRIPTIONS,
    PIPELINE_RAISE,
    USER_ADD,
    Arguments,
    argument,
    needed,
    nodes_meant,
    ordered_by,
    raised_by,
)
from heliograph.bus.commands import (
    DECISIONS,
    AlertHanded,
    AlertReceipted,
    AlertsClosed,
    AlertWithdrawn,
    Answered,
    Asked,
    BrowseEnded,
    ChunkRead,
    Command,
    Confirmed,
    ConsumerAttached,
    ConsumerDetached,
    DestinationDeleted,
    DestinationGone,
    DestinationMade,
    Dispatched,
    Fact,
    FlowChanged,
    Parcelled,
    Recalled,
    Refused,
    Rejected,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
    SubscriptionEnded,
    TopicsWanted,
    TransferFailed,
    UploadAdvanced,
    UploadBegun,
)
from heliograph.bus.interface import Bus
from heliograph.frontends.conversation import Keepsake
from heliograph.frontends.detect import Tls
from heliograph.frontends.http.front_desk import COOKIE, FrontDesk, host_in
from heliograph.frontends.native import frames
from heliograph.model.address_pattern import is_reserved
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault, HeliographError, NotAllowed, NotAuthenticated, Unavailable
from heliograph.model.ids import ConsumerId, IdIssuer, SessionId, session_of, text_of
from heliograph.model.large import FILE_ID_BYTES
from heliograph.model.limits import (
    CERTIFICATES_SECONDS,
    MAX_WAITING_PASSWORDS,
    PASSWORD_THREADS,
)
from heliograph.model.session_token import TOKEN_BYTES, token_of
from heliograph.nodes.certificates import Certificates
from heliograph.nodes.clock import CLOCK, Clock
from heliograph.nodes.configuration import Configuration
from heliograph.nodes.connection import Connection, Link
from heliograph.nodes.console_files import console_files
from heliograph.nodes.event_log import Record, ignore
from heliograph.nodes.keepsakes import Ended, Keepsakes
from heliograph.nodes.login import NONCE_BYTES, Admitted, Login, OpenDoor
from heliograph.nodes.node_facts import resident_bytes
from heliograph.nodes.passwords import kept_of
from heliograph.nodes.surveyor import Surveyor
from heliograph.nodes.tick import Tick
from heliograph.nodes.users import UserStore
from heliograph.nodes.vigil import Vigil
from heliograph.security.sasl import Channel, offered
from heliograph.security.strangers import Strangers
from heliograph.sessions.access import AccessControl, Identity, Right, Rule
from heliograph.sessions.admission import Admission
from heliograph.sessions.own_subscriptions import seen
from heliograph.sessions.rule_changes import loses
from heliograph.sessions.session import Session

_SWEEP_SECONDS = 1.0
_ANSWER_FIRST_SECONDS = 0.5
REQUEST_BYTES = 3
_OF_A_SESSION = (ChunkRead, UploadAdvanced, TransferFailed, AlertReceipted, AlertsClosed)


class ClientManager:
    """One client manager with its connections."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        bus: Bus,
        tick: Tick,
        issuer: IdIssuer,
        access: AccessControl,
        users: UserStore | None,
        record: Record = ignore,
        clock: Clock = CLOCK,
        certificates: Certificates | None = None,
    ) -> None:
        self._clock = clock
        self.surveyor: Surveyor | None = None  # by whom nodes are asked, each for itself
        self.configuration = configuration
        self._bus = bus
        self.tick = tick
        self._issuer = issuer
        self._access = access
        self._users = users
        self._log_ins_by = (
            users.users if users is not None else {}
        )  # what log-ins under way are checked against
        self.certificates = certificates
        self._certificates_at = 0.0  # when it is looked again whether they have changed
        self.record = record
        self._loop = asyncio.get_running_loop()
        self.vigil = Vigil(self._loop, clock.monotonic)
        self._started = clock.now()
        self.connections: dict[Connection, str] = {}  # and under what each is counted among strangers
        self._unproved: dict[
            Connection, None
        ] = {}  # those of whom nobody knows yet who they are, the oldest first
        limits = configuration.limits
        self.strangers = Strangers(
            per_address=limits.max_connections_per_address,
            per_second=limits.max_connection_rate,
            failures_per_minute=limits.max_failed_logins,
        )
        self._sessions: dict[SessionId, Link] = {}
        self._consumers: dict[ConsumerId, Link] = {}
        self._wildcards: dict[Link, None] = {}  # sessions that have had a consumer of many topics
        self._requests: dict[int, Link | _Question | _Opening] = {}
        # Sessions whose clients have yet to hear that they are open: by connection, and who asked last for each.
        self._openings: dict[Connection, list[_Opening]] = {}
        self._arriving: dict[SessionId, _Opening] = {}
        self._unopened: dict[SessionId, _Opening] = {}  # new ones, of which nothing was said yet
        self._distributions = configuration.distributions()
        # Answers are heard by every client manager: no two may ask under the same number.
        self._last_request = int.from_bytes(clock.secret(REQUEST_BYTES), "little") << 32
        self._dirty: dict[Connection, None] = {}
        self._named: dict[str, Connection] = {}
        self.keepsakes = Keepsakes()
        self._passwords = ThreadPoolExecutor(PASSWORD_THREADS, thread_name_prefix="password")
        self._waiting_passwords = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._is_draining = False
        self.origins = tuple(place for place in configuration.server.origins.split(",") if place)
        self.lacks: Callable[[], str] = lambda: ""  # what is waited for before clients are well served
        # Of the cluster, for the tokens of sessions; None: it is not known before somebody leads.
        self.key: Callable[[], bytes | None] = lambda: b""
        self.desk = FrontDesk(
            Answering(console_files(), self._lacking),
            secret=clock.secret,
            is_open=users is None,
            hosts=_hosts(configuration),
        )
        self.more_listeners: list[asyncio.Server] = []
        self._emptied: asyncio.Future[None] | None = None

    # ---- life

    def start(self) -> None:
        self._bus.join(self.on_command, DECISIONS)
        self.tick.add_send(self._flush)
        self._sweep_connections()

    def stop(self) -> None:
        """Tell every client that the server stops; they may resume their sessions when it is back."""
        if self._sweep is not None:
            self._sweep.cancel()
        for listener in self.more_listeners:
            listener.close()
        for connection in list(self.connections):
            connection.end(Unavailable("the server is stopping", code="server-stopping"))
        self._passwords.shutdown(wait=False, cancel_futures=True)

    def drop_all(self, why: HeliographError) -> None:
        """Every client that has something under way has to come again, here or elsewhere. One that only looks on, as
        an administrator does, may stay."""
        waiting = dict.fromkeys(waiting.connection for waiting in self._requests.values())
        for connection in list(self.connections):
            if connection.links or connection.facts.temporaries or connection in waiting:
                connection.end(why)

    async def drain(self, seconds: float) -> bool:
        """Ask every client to go elsewhere. Whether all of them went in time."""
        self._is_draining = True
        for connection in list(self.connections):
            connection.ask_to_move(seconds)
        deadline = self._loop.time() + seconds
        while self.connections and self._loop.time() < deadline:
            self._emptied = self._loop.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._emptied
        return not self.connections

    def _sweep_connections(self) -> None:
        moment = self._loop.time()
        for connection in list(self.connections):
            connection.check_life(moment)
        self._end_subscriptions(self.keepsakes.due(moment))
        if self.certificates is not None and moment >= self._certificates_at:
            self._certificates_at = moment + CERTIFICATES_SECONDS
            self.certificates.look_again(self._clock.now())
        self._sweep = self._loop.call_later(_SWEEP_SECONDS, self._sweep_connections)

    # ---- from the bus

    def on_command(self, command: Command) -> None:
        kind = type(command)
        if kind is Dispatched or kind is Parcelled or kind is BrowseEnded or kind is Recalled:
            link = self._consumers.get(command.consumer)  # type: ignore[attr-defined]
        elif kind is Confirmed or kind is Refused:
            link = self._sessions.get(session_of(command.lane))  # type: ignore[attr-defined]
        elif kind is AlertHanded or kind is AlertWithdrawn:
            self._to_recipients(command)  # type: ignore[arg-type]
            return
        elif kind in _OF_A_SESSION:
            link = self._sessions.get(command.session)  # type: ignore[attr-defined]
        elif kind is Answered or kind is Rejected:
            self._answer(command)  # type: ignore[arg-type]
            return
        elif kind is FlowChanged or kind is DestinationMade or kind is DestinationGone:
            self._news(command)  # type: ignore[arg-type]
            return
        else:
            return
        if link is not None:
            link.connection.on_decision(link, command)  # type: ignore[arg-type]

    def _to_recipients(self, decision: AlertHanded | AlertWithdrawn) -> None:
        """Each session finds its own consumers among them."""
        found = [self._sessions.get(recipient[0]) for recipient in decision.recipients]
        for link in dict.fromkeys(link for link in found if link is not None):
            link.connection.on_decision(link, decision)

    def _news(self, news: FlowChanged | DestinationMade | DestinationGone) -> None:
        """Something that concerns several sessions, or none."""
        links: list[Link]
        if isinstance(news, FlowChanged):
            links = list(self._sessions.values())
        elif isinstance(news, DestinationMade):
            links = list(self._wildcards)
        else:
            found = [self._consumers.get(consumer) for consumer in news.consumers]
            links = list(dict.fromkeys(link for link in found if link is not None))
        for link in links:
            link.connection.on_decision(link, news)
        if links:
            self.tick.ask()

    def _answer(self, answer: Answered | Rejected) -> None:
        waiting = self._requests.pop(answer.request, None)
        if isinstance(waiting, Link):
            waiting.connection.on_decision(waiting, answer)
        elif waiting is not None:
            waiting.answered(answer)

    def multicast(self, link: Link, fact: Fact) -> None:
        kind = type(fact)
        if kind is ConsumerAttached:
            self._consumers[fact.consumer] = link  # type: ignore[union-attr]
        elif kind is ConsumerDetached:
            self._consumers.pop(fact.consumer, None)  # type: ignore[union-attr]
        elif kind is TopicsWanted:
            self._wildcards[link] = None
        elif kind is UploadBegun and not fact.resumed:  # type: ignore[union-attr]
            # Nobody can guess it, so whoever knows it was given it.
            fact.file = self._clock.secret(FILE_ID_BYTES)  # type: ignore[union-attr]
        self._bus.multicast(fact)

    def _request(self, waiting: Link | _Question | _Opening) -> int:
        self._last_request += 1
        self._requests[self._last_request] = waiting
        return self._last_request

    # ---- connections

    def new_connection_id(self) -> bytes:
        return self._issuer.connection()

    def microseconds(self) -> int:
        """The time as messages carry it."""
        return self._clock.microseconds()

    def opened(self, connection: Connection, host: str) -> None:
        """One more connection, from a host. Raises Unavailable if there is no room for it."""
        if self._is_draining or len(self.connections) >= self.configuration.limits.max_connections:
            raise Unavailable("the server has as many connections as it takes", code="too-many-connections")
        self.connections[connection] = self.strangers.arrived(host, self._loop.time())
        self._unproved[connection] = None
        if len(self._unproved) > self.configuration.limits.max_unproved:
            next(iter(self._unproved)).give_way()

    def proved(self, connection: Connection) -> None:
        """It is known who it is."""
        self._unproved.pop(connection, None)

    def claim(self, connection: Connection, name: str) -> bool:
        """Whether a name is this connection's now. Whoever had it goes, and says so if it has to finish something.

        Raises NotAllowed where the name is another user's, who is here or has left something for the next time.
        """
        assert connection.user is not None
        self._check_holder(name, connection.user)
        former = self._named.get(name)
        if former is not None and former is not connection:
            if former.user != connection.user:
                raise NotAllowed("another user is here under this client id")
            former.end(Unavailable("another connection has this client id now", code="session-moved"))
            if former.is_busy:
                former.succeeded_by(connection, name)
                return False
            former.depart(is_back=True)
        connection.name = name
        self._named[name] = connection
        return True

    def _check_holder(self, name: str, user: Identity) -> None:
        holder = self.keepsakes.holder(name, self._loop.time())
        if holder in ("", user.name):
            return
        if self._users is not None and self._users.identity(holder) is None:
            self.keepsakes.drop(name, holder)  # there is no such user any more
            return
        raise NotAllowed("another user's session is kept under this client id")

    def claim_alone(self, connection: Connection, name: str) -> bool:
        """Whether a name is this connection's now: not if another has it."""
        if self._named.setdefault(name, connection) is not connection:
            return False
        connection.name = name
        return True

    def keepsake_for(self, connection: Connection, name: str) -> Keepsake | None:
        """What was kept under a name; it is the newcomer's, who left it."""
        assert connection.user is not None
        return self.keepsakes.take(name, connection.user.name, self._loop.time())

    def _keep(self, connection: Connection) -> None:
        if self._named.get(connection.name) is not connection:
            return
        del self._named[connection.name]
        keepsake = connection.keepsake
        if keepsake is None or connection.has_moved:
            return
        assert connection.user is not None
        user, moment = connection.user.name, self._loop.time()
        self._end_subscriptions(self.keepsakes.keep(connection.name, user, keepsake, moment))

    def _end_subscriptions(self, ended: Ended) -> None:
        for client, subscription in ended:
            self._bus.multicast(SubscriptionEnded(0, client, subscription))
        if ended:
            self.tick.ask()

    def session_opened(self, client: str, user: str, *, is_elsewhere: bool) -> None:
        """The bus says where a client is: the last who opened a session for it has it. What another client manager
        has left of it is of yesterday, and ends nothing."""
        here = self._named.get(client)
        if here is not None and here.user is not None and here.user.name == user:
            here.has_moved = is_elsewhere
        if is_elsewhere:
            self.keepsakes.drop(client, user)

    def closed(self, connection: Connection) -> None:
        counted = self.connections.pop(connection, None)
        if counted is not None:
            self.strangers.left(counted)
        self._unproved.pop(connection, None)
        self._keep(connection)
        self._dirty.pop(connection, None)
        for link in connection.links.values():
            if not connection.can_resume:
                self._leave(link)
                self._bus.multicast(SessionClosed(link.session.identity))
                continue
            self._lose(link)
            lost = SessionLost(link.session.identity, connection.lease_seconds, connection.facts.names[0])
            self._bus.multicast(lost)
        for opening in self._openings.pop(connection, ()):
            self._give_up(opening)
        for address in connection.facts.temporaries:
            self._bus.multicast(DestinationDeleted(address))
        if not self.connections and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)
        self.tick.ask()

    def _give_up(self, opening: _Opening) -> None:
        """Its client went before it heard that its session is open: message managers must not take it for there."""
        self._requests.pop(opening.request, None)
        identity, connection = opening.identity, opening.connection
        if self._arriving.get(identity) is not opening:
            return  # it has come again
        del self._arriving[identity]
        if self._unopened.pop(identity, None) is not None:
            return  # nobody has heard of it
        if not opening.message.resume:
            self._bus.multicast(SessionClosed(identity))  # nobody has its token
        else:
            lost = SessionLost(identity, connection.lease_seconds, connection.facts.names[0])
            self._bus.multicast(lost)

    def opening_answered(self, opening: _Opening) -> None:
        openings = self._openings.get(opening.connection, [])
        if opening in openings:
            openings.remove(opening)
            if not openings:
                del self._openings[opening.connection]
        if self._arriving.get(opening.identity) is opening:
            del self._arriving[opening.identity]

    def _leave(self, link: Link) -> None:
        """A session is closed."""
        self._forget(link)
        for detached in link.session.farewell():
            self.multicast(link, detached)

    def _lose(self, link: Link) -> None:
        """The connection of a session is gone; it may be resumed, here or elsewhere."""
        self._forget(link)
        for consumer in link.session.lose():
            if self._consumers.get(consumer) is link:
                del self._consumers[consumer]

    def _forget(self, link: Link) -> None:
        if self._sessions.get(link.session.identity) is link:
            del self._sessions[link.session.identity]
        self._wildcards.pop(link, None)

    def wants_flush(self, connection: Connection) -> None:
        self._dirty[connection] = None

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for connection in dirty:
            connection.flush()
        if dirty:
            self.vigil.answered()

    def _lacking(self) -> str:
        return "the server is about to leave" if self._is_draining else self.lacks()

    def use(self, users: UserStore) -> None:
        """There are other users now, or other rules. Whoever is here as somebody else logs in again."""
        self._users = users
        self.desk.is_open = False
        self.desk.forget_passwords()
        before = self._access.rules
        if [rule.text for rule in users.rules] != [rule.text for rule in before]:
            self.record("rights-changed", version=users.version, rules=len(users.rules))
        self._access.replace(users.rules)
        self._break_off_log_ins(users)
        # A moment later: one of them may be who changed it, and waits for the answer.
        self._loop.call_later(_ANSWER_FIRST_SECONDS, self._end_strangers, users, before)

    def _break_off_log_ins(self, users: UserStore) -> None:
        """What was begun with keys or passwords of yesterday must not be finished today. Nobody among them waits for
        an answer, so they go at once, before one of them has come in."""
        if users.users == self._log_ins_by:
            return
        self._log_ins_by = users.users
        for connection in list(self.connections):
            if connection.is_proving:
                connection.break_off_proof(
                    Unavailable("the users of the server have changed", code="server-moved")
                )

    def _end_strangers(self, users: UserStore, before: Sequence[Rule]) -> None:
        """What a client has was allowed when it began: who lost a right comes again, and is asked anew for each."""
        for connection in list(self.connections):
            user = connection.user
            if user is None:
                continue
            if users.identity(user.name) != user:
                connection.end(Unavailable("the users of the server have changed", code="server-moved"))
            elif loses(user, before, users.rules):
                connection.end(Unavailable("your rights have changed: come again", code="server-moved"))

    def tls_of_port(self, tls_only: bool) -> Tls:
        """What a port speaks; `tls_only`: it is one for TLS."""
        if self.certificates is None:
            return Tls.NONE
        return Tls.NEEDED if tls_only or self.configuration.tls.required else Tls.OFFERED

    def reload_certificates(self) -> dict[str, Any]:
        """The server's certificate as it is in its files now. Raises ClientFault, and everything is as it was."""
        if self.certificates is None:
            raise ClientFault(
                "this server has no certificate: name one in tls.certificate", code="certificate-invalid"
            )
        return self.certificates.reload()

    # ---- who is it?

    def login(self, channel: Channel) -> Login | OpenDoor:
        """Somebody comes on this way, and is about to say who it is."""
        if self._users is None:
            return OpenDoor()
        return Login(
            self._users,
            self._check_password,
            channel,
            nonce=self._clock.secret(NONCE_BYTES),
            plain_anywhere=self.configuration.identity.passwords_in_the_clear,
            known=self._known_to_desk,
        )

    async def authenticate(self, hello: frames.Hello, channel: Channel) -> Identity:
        """For who proves it in one step. Raises NotAuthenticated, with one text for an unknown user and for a wrong
        password."""
        outcome = await self.login(channel).begin(hello)
        if not isinstance(outcome, Admitted):
            raise NotAuthenticated("this way to log in takes more than one step", code="mechanism-unknown")
        return outcome.user

    def mechanisms(self, channel: Channel) -> list[str]:
        """The ways to log in that make sense for a client that comes on this way, the best first."""
        plain_anywhere = self.configuration.identity.passwords_in_the_clear
        return offered(channel, has_users=self._users is not None, plain_anywhere=plain_anywhere)

    async def _check_password(self, user: str, password: str) -> bool:
        assert self._users is not None
        if self._waiting_passwords >= MAX_WAITING_PASSWORDS:
            raise Unavailable("too many log-ins at once: try again in a moment", code="too-many-logins")
        self._waiting_passwords += 1
        try:
            found = await self._loop.run_in_executor(self._passwords, self._users.verify, user, password)
        finally:
            self._waiting_passwords -= 1
        return found is not None

    def _known_to_desk(self, users: UserStore, hello: frames.Hello) -> Identity | None:
        """Who logged in before, or sent this password a moment ago. Raises NotAuthenticated."""
        now = self._clock.now()
        if hello.mechanism == COOKIE:
            found = users.identity(self.desk.who(hello.password, now))
            if found is None:
                raise NotAuthenticated("the user is not known any more")
            return found
        if hello.client == "http" and self.desk.remembers(hello.user, hello.password, now):
            return users.identity(hello.user)
        return None

    def welcome(self, user: Identity, heartbeat_seconds: float, proof: bytes = b"") -> frames.Welcome:
        return frames.Welcome(
            version=frames.PROTOCOL_VERSION,
            server=f"heliograph {__version__}",
            user=user.name,
            heartbeat_seconds=heartbeat_seconds,
            max_frame_bytes=self.configuration.limits.max_frame_bytes,
            addresses=[place for place in self.configuration.server.advertise.split(",") if place],
            sub_clusters=list(names) if len(names := self.configuration.cluster.all_sub_clusters) > 1 else [],
            proof=proof,
        )

    # ---- sessions

    def open_session(self, connection: Connection, message: frames.OpenSession) -> None:
        """A new session, or one that its client had before, wherever that was."""
        user = connection.user
        assert user is not None
        identity = SessionId(message.resume) if message.resume else self._issuer.session()
        token = message.token if message.resume else self._clock.secret(TOKEN_BYTES)
        opening = _Opening(self, connection, message, identity, token)
        request = opening.request = self._request(opening)
        self._openings.setdefault(connection, []).append(opening)
        self._arriving[identity] = opening
        if message.resume:
            lease = self.configuration.sessions.reconnect_seconds
            names = connection.facts.names
            self._bus.multicast(
                SessionResumed(request, identity, user.name, token, *names, lease, kept=message.keep)
            )
        else:
            self._unopened[identity] = opening
            self.open_sessions()

    def open_sessions(self) -> None:
        """Those that wait, once somebody leads: a token that was made before proves to no other part of a cluster
        that the session is its own (P7)."""
        key = self.key()
        if key is None:
            return
        unopened, self._unopened = self._unopened, {}
        for identity, opening in unopened.items():
            user, names = opening.connection.user, opening.connection.facts.names
            assert user is not None
            token = opening.token = token_of(opening.token, identity, user.name, key)
            kept = opening.message.keep
            self._bus.multicast(SessionOpened(opening.request, identity, user.name, token, *names, kept=kept))

    def session_ready(self, opening: _Opening, body: dict[str, Any]) -> None:
        connection = opening.connection
        number = opening.message.number
        if connection not in self.connections or number in connection.links:
            return
        former = self._sessions.get(opening.identity)
        if former is not None:
            # Its client came back before the old connection was seen to be dead: the newcomer has the
            # session.
            former.connection.end(
                Unavailable("the session was resumed on another connection", code="session-moved")
            )
            self._lose(former)
            former.connection.links.pop(former.number, None)
        assert connection.user is not None
        link = Link(connection, number)
        link.session = Session(
            opening.identity,
            user=connection.user,
            access=self._access,
            issuer=self._issuer,
            next_request=lambda: self._request(link),
            create_on_first_use=self.configuration.destinations.create_on_first_use,
            connection=connection.facts,
            distributions=self._distributions,
        )
        connection.links[number] = link
        self._sessions[opening.identity] = link
        resumed = bool(opening.message.resume)
        link.session.restore_consumers(body.get("consumers", []))
        connection.send_control(
            frames.SessionOpened(
                opening.message.request,
                opening.identity,
                opening.token,
                resumed,
                link.session.restore_lanes(body.get("lanes", [])),
            )
        )
        if resumed:
            self.record("session-resumed", session=text_of(opening.identity), user=connection.user.name)
            connection.carry_out(link, link.session.restore_blocks(body.get("blocked", {})))

    def session_taken(self, identity: SessionId) -> None:
        """Another client manager has it. Whoever is still here comes again."""
        link = self._sessions.get(identity)
        if link is not None:
            link.connection.end(
                Unavailable("the session was resumed elsewhere: come again", code="server-moved")
            )
            self._lose(link)
            link.connection.links.pop(link.number, None)

    def close_session(self, connection: Connection, message: frames.CloseSession) -> None:
        link = connection.links.pop(message.number, None)
        if link is None:
            connection.send_control(
                frames.Failed(message.request, "session-unknown", f"there is no session {message.number}")
            )
            return
        self._leave(link)
        connection.forget_session(link.session.identity)
        self._bus.multicast(SessionClosed(link.session.identity))
        connection.send_control(frames.Completed(message.request))

    # ---- questions

    def ask(self, connection: Connection, message: frames.Ask) -> None:
        assert connection.user is not None
        if message.subject == OWN_SUBSCRIPTIONS:
            self._ask_own(connection, message)
            return
        try:
            for right, over in needed(message.subject, message.arguments):
                plain = self._distributions.split(Address(over))[0]
                self._access.check(connection.user, right, plain)
            if message.subject == CERTIFICATE_RELOAD:
                connection.send_control(frames.Answer(message.request, self.reload_certificates()))
                return
            if message.subject == ASK_NODES and self.surveyor is not None:
                self._ask_nodes(self.surveyor, connection, message)
                return
            if message.subject == CONFIGURATION:
                settings: dict[str, Any] = msgspec.to_builtins(self.configuration)
                connection.send_control(frames.Answer(message.request, settings))
                return
            if message.subject == USER_ADD and "plain" in message.arguments:
                self._hash_first(connection, message)
                return
            if message.subject in OF_USERS and self.surveyor is not None:
                self._ask_keeper(self.surveyor, connection, message)
                return
        except HeliographError as error:
            if isinstance(error, NotAllowed):
                connection.note_refusal(error.sentence)
            connection.send_control(frames.Failed(message.request, error.code, error.sentence))
            return
        arguments = message.arguments
        if message.subject == PIPELINE_RAISE:
            arguments = self._raised(connection.user, arguments)
        request = self._request(_Question(self, connection, message))
        self._bus.multicast(Asked(request, message.subject, arguments))

    def _raised(self, user: Identity, arguments: Arguments) -> Arguments:
        """Who raises alerts says neither who they are nor what they may."""
        address = Address(argument(arguments, "destination", str))
        creates = self.configuration.destinations.create_on_first_use and not is_reserved(address)
        plain = self._distributions.split(address)[0]
        may_create = creates and self._access.allows(user, Right.CREATE, plain)
        return raised_by(user.name, arguments, may_create=may_create)

    def _hash_first(self, connection: Connection, message: frames.Ask) -> None:
        """A password that came as it is, from a browser, goes on as its hash, which takes a thread a moment."""
        password = argument(message.arguments, "plain", str)
        future = self._loop.run_in_executor(self._passwords, kept_of, password)

        def hashed(done: asyncio.Future[dict[str, str]]) -> None:
            if done.cancelled() or connection not in self.connections:
                return
            rest = {name: value for name, value in message.arguments.items() if name != "plain"}
            self.ask(
                connection,
                frames.Ask(message.request, message.subject, {**rest, **done.result()}),
            )
            self.tick.ask()

        future.add_done_callback(hashed)

    def _ask_own(self, connection: Connection, message: frames.Ask) -> None:
        """A client may know what is kept for it where its user may receive."""
        assert connection.user is not None
        if not self._access.allows_somewhere(connection.user, Right.RECEIVE):
            connection.send_control(frames.Answer(message.request, {"subscriptions": []}))
            return
        own = {"client": connection.facts.client_id}
        request = self._request(_Question(self, connection, message))
        self._bus.multicast(Asked(request, OWN_SUBSCRIPTIONS, own))

    def own_of(self, connection: Connection, body: dict[str, Any]) -> dict[str, Any]:
        """Of what is kept for a client, what concerns its user: its name is one that anybody may give."""
        assert connection.user is not None
        admission = Admission(
            connection.user, self._access, connection.facts, creates=False, distributions=self._distributions
        )
        return {"subscriptions": seen(body, admission)}

    def _ask_nodes(self, surveyor: Surveyor, connection: Connection, message: frames.Ask) -> None:
        """Raises HeliographError."""
        assert connection.user is not None
        arguments, request = message.arguments, message.request
        command = argument(arguments, "command", str)
        surveyor.ask(
            command,
            ordered_by(connection.user.name, command, argument(arguments, "arguments", dict, {})),
            nodes_meant(arguments),
            lambda reply: connection.send_control(frames.Answer(request, reply)),
        )

    def _ask_keeper(self, surveyor: Surveyor, connection: Connection, message: frames.Ask) -> None:
        """What is kept in one place for all. Raises HeliographError."""
        keeper = surveyor.keeper()
        if not keeper:
            raise Unavailable("nobody leads now: try again when somebody does", code="not-leading")

        def answer(composite: dict[str, Any]) -> None:
            (reply,) = composite["replies"]
            if reply["ok"]:
                connection.send_control(frames.Answer(message.request, reply["body"]))
            else:
                error = reply["error"]
                connection.send_control(frames.Failed(message.request, error["code"], error["sentence"]))

        assert connection.user is not None
        arguments = ordered_by(connection.user.name, message.subject, message.arguments)
        surveyor.ask(message.subject, arguments, [keeper], answer)

    @property
    def session_count(self) -> int:
        return len(self._sessions)

    def server_facts(self) -> dict[str, Any]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "connections": len(self.connections),
            "sessions": len(self._sessions),
            "rss_bytes": resident_bytes(),
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "time": self._clock.now(),
            "uptime_seconds": self._clock.now() - self._started,
            "durability": self.configuration.journal.durability,
            "node": f"{self.configuration.identity.site}.{self.configuration.identity.node}",
        }


def _hosts(configuration: Configuration) -> list[str]:
    """Under which names a server without users may be asked by HTTP, besides those of its own machine."""
    server = configuration.server
    places = [server.host, *server.advertise.split(",")]
    places += [origin.partition("://")[2] for origin in server.origins.split(",")]
    return [host_in(place) for place in places if place]


class _Opening:
    """A session that waits for the message managers to know it."""

    def __init__(
        self,
        manager: ClientManager,
        connection: Connection,
        message: frames.OpenSession,
        identity: SessionId,
        token: bytes,
    ) -> None:
        self._manager = manager
        self.connection = connection
        self.message = message
        self.identity = identity
        self.token = token
        self.request = 0

    def answered(self, answer: Answered | Rejected) -> None:
        self._manager.opening_answered(self)
        if isinstance(answer, Rejected):
            self.connection.send_control(frames.Failed(self.message.request, answer.code, answer.sentence))
        else:
            self._manager.session_ready(self, answer.body)


class _Question:
    """A question of a client that waits for its answer."""

    def __init__(self, manager: ClientManager, connection: Connection, message: frames.Ask) -> None:
        self._manager = manager
        self.connection = connection
        self._message = message

    def answered(self, answer: Answered | Rejected) -> None:
        request = self._message.request
        if isinstance(answer, Rejected):
            self.connection.send_control(frames.Failed(request, answer.code, answer.sentence))
            return
        body = answer.body
        if self._message.subject == OWN_SUBSCRIPTIONS:
            body = self._manager.own_of(self.connection, body)
        if self._message.subject == "server":
            body = {**self._manager.server_facts(), **body, "journal_bytes": body["journal"]["disk_bytes"]}
        self.connection.send_control(frames.Answer(request, body))
