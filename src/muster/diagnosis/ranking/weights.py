"""How much each sign speaks for a rank: the change in the logarithm of the odds that it is to blame.

Fitted to recorded failures with what the rules had said of them before they were mended with them:
`python -m tests.verdicts.fit_ranking` prints this table.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.diagnosis.ranking.signs import Sign

WEIGHTS: Mapping[Sign, float] = {
    Sign.RAISED: +1.53,
    Sign.CRASHED: +1.03,
    Sign.LEFT_WITH_CODE: -0.40,
    Sign.LOST_PEER: -0.56,
    Sign.LEFT_WELL: -0.26,
    Sign.STOPPED: -0.05,
    Sign.ALONE_RAISED: +0.81,
    Sign.ALONE_CRASHED: +0.69,
    Sign.ALONE_LEFT_WITH_CODE: -0.31,
    Sign.ALONE_LOST_PEER: -0.20,
    Sign.ALONE_LEFT_WELL: +1.66,
    Sign.ALONE_STOPPED: +1.56,
    Sign.ENDED_FIRST: +0.21,
    Sign.FAILED_AS_ANOTHER: -0.19,
    Sign.LOGGED_AN_EXCEPTION: -0.63,
    Sign.FIRST_RANK: -1.53,
    Sign.IN_A_COLLECTIVE: -0.65,
    Sign.SEEMED_TO_WAIT: +0.44,
    Sign.BUSY: +0.30,
    Sign.NO_STACK: -0.14,
    Sign.ALONE_IN_A_COLLECTIVE: +0.36,
    Sign.ALONE_SEEMED_TO_WAIT: -0.56,
    Sign.ALONE_BUSY: +0.71,
    Sign.ALONE_NO_STACK: +0.58,
    Sign.AT_A_PLACE_OF_ITS_OWN: +1.11,
    Sign.NAMED: +0.98,
    Sign.ONLY_ONE_NAMED: +1.46,
    Sign.NUMBER_SAID: +0.59,
    Sign.ONLY_NUMBER_SAID: +0.63,
    Sign.NOT_IN_THE_LIST: +1.62,
    Sign.IN_LAST_WORDS: +0.57,
    Sign.NAMES_ANOTHER: -0.90,
    Sign.SAYS_A_NUMBER: -0.06,
    Sign.LINE_OF_ITS_OWN: +0.58,
    Sign.ONLY_LINE_OF_ITS_OWN: +0.42,
    Sign.ONLY_LINE_BUT_THE_FIRST: +1.83,
    Sign.LACKS_A_LINE: +0.79,
    Sign.ALONE_LACKS_A_LINE: +0.79,
    Sign.ALONE_SAYS_OTHERWISE: +1.20,
    Sign.ANOTHER_VALUE: +1.21,
    Sign.ONLY_OTHER_VALUE: +1.20,
    Sign.OTHER_VALUE_BUT_THE_FIRST: +2.34,
    Sign.SAID_NOTHING: +0.47,
    Sign.BEHIND: +0.48,
    Sign.AHEAD: -0.58,
    Sign.RULES_CERTAIN: +1.82,
    Sign.RULES_LIKELY: +2.11,
    Sign.RULES_UNSURE: +1.00,
    Sign.RULES_FOR_A_LONE_EXCEPTION: +1.08,
    Sign.RULES_THOUGH_IT_NAMES_ANOTHER: -0.72,
    Sign.RULES_THOUGH_IT_RAISED_NOTHING: +1.91,
    Sign.RULES_FOR_THE_FIRST_RANK: -0.90,
    Sign.NOBODY: -1.28,
    Sign.NOBODY_CERTAIN: +2.64,
    Sign.NOBODY_UNSURE: +0.88,
    Sign.NOBODY_ALL_ALIKE: +1.78,
    Sign.NOBODY_WHILE_MEETING: +2.55,
    Sign.NOBODY_OF_TWO: +0.23,
}
