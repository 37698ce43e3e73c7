"""Node hours and their price."""

from muster.control.cost import Use, cost_by


def test_hours_are_summed_and_priced_where_a_price_is_known():
    lines = cost_by([Use("ann", "r1", 2.0, 4, 3.0), Use("ann", "r2", 1.0, 0, None), Use("bob", "r3", 5.0)])
    assert [line.key for line in lines] == ["bob", "ann"]
    assert lines[0].cost is None
    ann = lines[1]
    assert (ann.runs, ann.node_hours, ann.gpu_hours, ann.priced_node_hours) == (2, 3.0, 8.0, 2.0)
    assert ann.cost == 6.0
