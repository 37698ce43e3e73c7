"""Ships events and bytes to the server, in order, with retries.

One thread owns everything here; others queue actions for it. Bytes stay in their files until the server has them, and
the server says how much it has, so correctness needs no local state.
"""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from muster.agent.link import Backoff, Link, Trouble
from muster.agent.ship.masking import LEAST, Masker, make_masker
from muster.agent.ship.streams import Piece, Stream, covered, share
from muster.defaults import HEARTBEAT_S, SHIP_BATCH_BYTES
from muster.errors import AccessDenied, UserError
from muster.host.files import is_shortage, read_json, write_json
from muster.host.sandbox.fence import open_inside
from muster.paths import AttemptPaths
from muster.wire.node.agents import AttemptKey, Chunk, Delivered, Event, Heartbeat, Noted, encode

log = logging.getLogger(__name__)

PASS_S = 0.03
_SAVE_S = 1.0
_libc = ctypes.CDLL(None, use_errno=True)
_GROUPS = ("user_logs", "events")


class Sent(NamedTuple):
    """A chunk of a stream, and its bytes as they are in the file."""

    stream: Stream
    chunk: Chunk
    raw: bytes


@dataclass
class Tracked:
    """One attempt's streams."""

    paths: AttemptPaths
    limit_bytes: int
    masker: Masker | None = None
    streams: dict[str, Stream] = field(default_factory=dict)
    finished: bool = False
    saved_at: float = field(default_factory=time.monotonic)
    unsaved: bool = False


class Owner(Protocol):
    """The owner of a shipper; called in its thread."""

    def heartbeat(self) -> Heartbeat: ...
    def delivered(self, key: AttemptKey) -> None: ...
    def forget(self, key: AttemptKey) -> None: ...
    def introduce(self) -> None: ...


class Shipper(threading.Thread):
    """Delivers for all attempts of the node."""

    def __init__(self, link: Link) -> None:
        super().__init__(name="shipper", daemon=True)
        self._link = link
        self._owner: Owner | None = None
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._outbox: list[Event] = []
        self._tracked: dict[AttemptKey, Tracked] = {}
        self._backoff = Backoff()
        # The hello, which comes first, counts as a heartbeat.
        self._next_heartbeat = time.monotonic() + HEARTBEAT_S
        self._closing = False
        self._short = False
        """Descriptors or memory ran out, so this pass did not see everything."""

    def serve(self, owner: Owner) -> None:
        """Start delivering."""
        self._owner = owner
        self.start()

    # Called from other threads

    def track(self, key: AttemptKey, paths: AttemptPaths, limit_bytes: int, masked: tuple[str, ...] = ()) -> None:
        """Watch an attempt's streams; `masked` are secrets that must not leave the node."""
        self._inbox.put(lambda: self._track(key, Tracked(paths, limit_bytes, make_masker(masked))))

    def tell(self, event: Event) -> None:
        self._inbox.put(lambda: self._outbox.append(event))

    def finish(self, key: AttemptKey) -> None:
        """No process of the attempt is left: its streams are final."""
        self._inbox.put(lambda: self._finish(key))

    def drop(self, key: AttemptKey) -> None:
        """Forget an attempt."""
        self._inbox.put(lambda: self._drop(key))

    def look(self) -> None:
        """Look soon: something was probably written."""
        self._inbox.put(lambda: None)

    def close(self) -> None:
        self._closing = True
        self.look()

    # In its own thread

    def run(self) -> None:
        wait_s = 0.0
        while True:
            self._take(wait_s)
            if self._closing:
                break
            wait_s = self._pass()
        for tracked in self._tracked.values():
            _save(tracked)
        self._link.close()

    def _take(self, wait_s: float) -> None:
        try:
            action = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            while True:
                action()
                action = self._inbox.get_nowait()
        except queue.Empty:
            pass

    def _track(self, key: AttemptKey, tracked: Tracked) -> None:
        if key not in self._tracked:
            _load(tracked)
            self._tracked[key] = tracked

    def _finish(self, key: AttemptKey) -> None:
        if key in self._tracked:
            self._tracked[key].finished = True

    def _drop(self, key: AttemptKey) -> None:
        self._tracked.pop(key, None)
        self._outbox = [event for event in self._outbox if event.key != key]

    def _pass(self) -> float:
        """Look at everything once and send what is new; returns how long to wait."""
        looks = [_look(tracked) for tracked in self._tracked.values()]
        self._short = not all(looks)
        events, pieces = self._next_batch()
        heartbeat_due = time.monotonic() >= self._next_heartbeat
        if events or pieces or heartbeat_due:
            if not self._deliver(events, pieces):
                return self._backoff.next_s()
            self._backoff.reset()
            if self._more() and not self._short:
                return 0.0
        if self._tracked:
            return PASS_S
        return max(0.001, self._next_heartbeat - time.monotonic())

    def _next_batch(self) -> tuple[list[Event], list[tuple[AttemptKey, Stream, Piece]]]:
        """One batch: events first, then bytes; `delivered` only behind the last byte of its attempt."""
        owned = [
            (key, stream)
            for key, tracked in self._tracked.items()
            for stream in tracked.streams.values()
            if _ready(tracked, stream)
        ]
        owners = {id(stream): key for key, stream in owned}
        chosen = share([stream for _, stream in owned], SHIP_BATCH_BYTES)
        events = [event for event in self._outbox if not _is_last(event) or self._complete(event, chosen)]
        return events, [(owners[id(stream)], stream, piece) for stream, piece in chosen]

    def _complete(self, event: Event, chosen: list[tuple[Stream, Piece]]) -> bool:
        tracked = self._tracked.get(event.key)
        if tracked is None:
            return True
        return tracked.finished and not self._short and covered(list(tracked.streams.values()), chosen)

    def _deliver(self, events: list[Event], pieces: list[tuple[AttemptKey, Stream, Piece]]) -> bool:
        read = [(stream, self._chunk(key, stream, piece)) for key, stream, piece in pieces]
        chunks = [Sent(stream, *found) for stream, found in read if found is not None]
        early = [event for event in events if not _is_last(event)]
        late = [event for event in events if _is_last(event)]
        if sum(len(sent.chunk.data) for sent in chunks) != sum(piece.size for _, _, piece in pieces):
            # A file has changed since: look again before reporting that this was all.
            late = []
        frames: list[Event | Sent] = [*early, *chunks, *late]
        try:
            try:
                return self._exchange(frames, beat=time.monotonic() >= self._next_heartbeat)
            except AccessDenied:
                raise
            except UserError as error:
                log.warning("a delivery was refused, and is sent frame by frame: %s", error)
                return all(self._exchange_or_drop(frame) for frame in frames)
        except Trouble as error:
            if self._backoff.fresh:
                log.info("not delivered, will be sent again: %s", error)
            return False

    def _exchange_or_drop(self, frame: Event | Sent) -> bool:
        """Send one frame; one that the server refuses for good is dropped with a note, so that it blocks nothing."""
        try:
            return self._exchange([frame])
        except AccessDenied:
            raise
        except UserError as error:
            log.error("refused for good, and left out: %s", error)
        if isinstance(frame, Sent):
            run, attempt = frame.chunk.run, frame.chunk.attempt
            what = f"{len(frame.chunk.data):,} bytes of {frame.chunk.stream}"
            frame.stream.acknowledge(frame.chunk.offset + len(frame.chunk.data))
        else:
            run, attempt, what = frame.run, frame.attempt, f"an event ({frame.kind})"
            self._outbox.remove(frame)
        if not (isinstance(frame, Event) and isinstance(frame.data, Noted)):
            text = f"{what} could not be delivered, and is left out: the server refuses it"
            self._outbox.append(Event(run, attempt, time.time(), Noted(text, "error")))
        return True

    def _exchange(self, frames: Sequence[Event | Sent], beat: bool = False) -> bool:
        """Send one delivery, and apply the answer."""
        assert self._owner is not None
        sent_frames = [frame.chunk if isinstance(frame, Sent) else frame for frame in frames]
        beats = [self._owner.heartbeat()] if beat else []
        answer = self._link.deliver(b"".join(encode([*beats, *sent_frames])))
        if answer.missing:
            self._owner.introduce()
            return False
        self._acknowledge(answer.lengths)
        for frame in frames:
            if isinstance(frame, Sent):
                frame.stream.remember(frame.chunk.offset, frame.raw)
        if beat:
            self._next_heartbeat = time.monotonic() + HEARTBEAT_S
        events = [frame for frame in frames if isinstance(frame, Event)]
        sent = {id(event) for event in events}
        self._outbox = [event for event in self._outbox if id(event) not in sent]
        for event in events:
            if _is_last(event):
                self._owner.delivered(event.key)
        for key in answer.forget:
            self._owner.forget(key)
        return True

    def _chunk(self, key: AttemptKey, stream: Stream, piece: Piece) -> tuple[Chunk, bytes] | None:
        """A piece as it is sent, and the same bytes as they are in the file."""
        if piece.mark:
            return Chunk(key[0], key[1], stream.name, piece.offset, piece.mark), piece.mark
        tracked = self._tracked[key]
        path = tracked.paths.streams / stream.name
        try:
            # A rank may replace its log by a link to anything.
            descriptor = open_inside(path.parent, Path(path.name))
            try:
                before = _before(tracked, descriptor, piece)
                overlap = len(stream.tail)
                data = os.pread(descriptor, piece.size + overlap, piece.position - overlap)
            finally:
                os.close(descriptor)
            if not data.startswith(stream.tail):
                stream.restart()
                return None
            data = data[overlap:]
        except OSError as error:
            if is_shortage(error):
                log.info("%s cannot be read now: %s", path, error)
                self._short = True
                return None
            log.warning("%s cannot be read, so its rest is lost: %s", path, error)
            text = f"{piece.size:,} bytes of {stream.name} are lost: it cannot be read ({error.strerror})"
            self._outbox.append(Event(*key, time.time(), Noted(text, "error")))
            stream.update_size(0)
            return None
        shown = data if tracked.masker is None else _masked(tracked, stream, piece, before, data)
        return (Chunk(key[0], key[1], stream.name, piece.offset, shown), data[: len(shown)]) if shown else None

    def _acknowledge(self, lengths: Iterable[tuple[str, int, str, int]]) -> None:
        for run, attempt, name, length in lengths:
            tracked = self._tracked.get((run, attempt))
            stream = tracked.streams.get(name) if tracked else None
            if tracked is None or stream is None:
                continue
            stream.acknowledge(length)
            tracked.unsaved = True
        for key, tracked in list(self._tracked.items()):
            if tracked.finished and not self._short and not any(stream.pending for stream in tracked.streams.values()):
                # Nothing more can come, and the server has everything.
                del self._tracked[key]
                continue
            for stream in tracked.streams.values():
                _punch(tracked, stream)
            if tracked.unsaved and time.monotonic() - tracked.saved_at > _SAVE_S:
                _save(tracked)

    def _more(self) -> bool:
        """Whether more bytes are waiting: then do not pause."""
        return bool(self._outbox) or any(
            _ready(tracked, stream) for tracked in self._tracked.values() for stream in tracked.streams.values()
        )


def _is_last(event: Event) -> bool:
    """Whether the event reports that everything is delivered, so it comes after every byte."""
    return isinstance(event.data, Delivered)


def _before(tracked: Tracked, descriptor: int, piece: Piece) -> bytes:
    """The bytes of the file before a piece in which a secret that ends in the piece could begin."""
    if tracked.masker is None:
        return b""
    reach = min(tracked.masker.overlap, piece.position)
    return os.pread(descriptor, reach, piece.position - reach)


def _masked(tracked: Tracked, stream: Stream, piece: Piece, before: bytes, data: bytes) -> bytes:
    """A piece with secrets masked. Its end is held back while it may begin a secret."""
    assert tracked.masker is not None
    whole = before + data
    masked = tracked.masker.mask(whole)[len(before) :]
    held = min(tracked.masker.unfinished(whole), len(masked))
    at_end = piece.position + len(data) >= stream.size
    if (tracked.finished and at_end) or stream.is_cut_at(piece.offset + len(data)):
        # Nothing follows: mask even the beginning of a secret, unless it is just a character.
        return masked if held < LEAST else masked[: len(masked) - held] + b"*" * held
    stream.waits_at = stream.size if held and at_end else None
    return masked[: len(masked) - held]


def _ready(tracked: Tracked, stream: Stream) -> bool:
    """Whether there are bytes to send that are not held back."""
    return stream.pending > 0 and (stream.waits_at != stream.size or tracked.finished)


def _look(tracked: Tracked) -> bool:
    """Read the current sizes of the streams; returns whether that worked."""
    for group in _GROUPS:
        try:
            entries = list(os.scandir(tracked.paths.streams / group))
        except OSError as error:
            if is_shortage(error):
                return False
            continue
        for entry in entries:
            if not entry.is_file(follow_symlinks=False):
                continue
            name = f"{group}/{entry.name}"
            stream = tracked.streams.get(name)
            if stream is None:
                limit = tracked.limit_bytes if group == "user_logs" else None
                stream = tracked.streams[name] = Stream(name, limit)
            stream.update_size(entry.stat(follow_symlinks=False).st_size)
    return True


def _punch(tracked: Tracked, stream: Stream) -> None:
    """Free the disk blocks of what was delivered."""
    if not stream.name.startswith("user_logs/"):
        return
    part = stream.punchable()
    if part is not None:
        _punch_hole(tracked.paths.streams / stream.name, *part)
        stream.punched = sum(part)


def _punch_hole(path: Path, position: int, size: int) -> None:
    """Free a range of a file without changing its length; does nothing where that is not supported."""
    keep_size, punch = 1, 2
    if sys.platform == "linux":
        with suppress(OSError), os.fdopen(open_inside(path.parent, Path(path.name), os.O_RDWR), "r+b") as file:
            _libc.fallocate(file.fileno(), keep_size | punch, ctypes.c_int64(position), ctypes.c_int64(size))


def _save(tracked: Tracked) -> None:
    """Save the offsets, which saves the next agent some requests; the server's count is what matters."""
    known = {name: [stream.acked, stream.base, stream.punched] for name, stream in tracked.streams.items()}
    tracked.saved_at = time.monotonic()
    tracked.unsaved = False
    try:
        write_json(tracked.paths.delivered, known)
    except OSError as error:
        log.info("%s was not written: %s", tracked.paths.delivered, error)


def _load(tracked: Tracked) -> None:
    for name, (acked, base, punched) in (read_json(tracked.paths.delivered) or {}).items():
        limit = tracked.limit_bytes if name.startswith("user_logs/") else None
        tracked.streams[name] = Stream(name, limit, acked=acked, base=base, punched=punched)
