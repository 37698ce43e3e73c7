"""A clock whose differences are durations."""

from muster.host.clock import SteadyClock


class Machine:
    def __init__(self):
        self.wall, self.monotonic = 1_000_000.0, 50.0

    def pass_s(self, seconds):
        self.wall += seconds
        self.monotonic += seconds


def test_setting_the_machines_clock_changes_no_duration_until_it_is_adopted():
    machine = Machine()
    clock = SteadyClock(lambda: machine.wall, lambda: machine.monotonic)
    begun = clock.now()
    machine.pass_s(3)
    machine.wall -= 7200
    machine.pass_s(4)
    assert clock.now() - begun == 7
    assert clock.jump_s() == -7200
    clock.adopt(clock.jump_s())
    assert clock.now() == machine.wall
    assert clock.jump_s() == 0
