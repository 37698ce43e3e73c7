"""A machine whose clock is set: a preloaded library adds to the time of day, and leaves the monotonic clock alone."""

from __future__ import annotations

from dataclasses import dataclass

from tests.chaos import preload, processes
from tests.chaos.checks import Expected
from tests.chaos.stage import Stage
from tests.chaos.trial import Fault, Scene

_MOMENTS = ("submitted", "begun", "flowing", "middle", "last")
_LIBRARY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset_s(void) {
    char text[32] = {0};
    int file = open("%s", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    return size > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(which, now);
    if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += offset_s();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    (void) zone;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (where) *where = found.tv_sec;
    return found.tv_sec;
}
"""


@dataclass
class ClockStage(Stage):
    """A local workspace in a mount namespace of its own, in which every new process has the library."""

    name: str = "clock"

    def configure(self) -> None:
        super().configure()
        self.offset = self.home / "offset"
        self.set_clock(0)
        preload.load(self.home, _LIBRARY % self.offset, self._stack)

    def set_clock(self, seconds: int) -> None:
        preload.tell(self.offset, str(seconds))


def _set(scene: Scene, seconds: int) -> None:
    assert isinstance(scene.stage, ClockStage)
    before = int(scene.stage.offset.read_text())
    scene.stage.set_clock(before + seconds)


def set_forward(scene: Scene) -> Expected:
    _set(scene, scene.chance.choice((30, 7200, 86_400)))
    return Expected()


def set_back(scene: Scene) -> Expected:
    _set(scene, -scene.chance.choice((30, 7200, 86_400)))
    return Expected()


def set_and_server_killed(scene: Scene) -> Expected:
    """The clock is set while there is no server."""
    server = scene.stage.server()
    server.kill()
    _set(scene, scene.chance.choice((-7200, 7200)))
    return Expected()


def set_and_rank_killed(scene: Scene) -> Expected:
    """A further attempt's wait is not touched by it."""
    _set(scene, scene.chance.choice((-7200, 7200)))
    return processes.rank_killed(scene)


def set_and_agent_killed(scene: Scene) -> Expected:
    _set(scene, scene.chance.choice((-7200, 7200)))
    return processes.agent_killed(scene)


CLOCKS = (
    Fault("the clock set forward", set_forward, _MOMENTS),
    Fault("the clock set back", set_back, _MOMENTS),
    Fault("the clock set without a server", set_and_server_killed, _MOMENTS),
    Fault("the clock set, and a rank killed", set_and_rank_killed, _MOMENTS[1:]),
    Fault("the clock set, and an agent killed", set_and_agent_killed, _MOMENTS[1:]),
)
