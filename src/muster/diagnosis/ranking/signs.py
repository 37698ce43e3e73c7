"""Signs that a rank is to blame, or is not; the words follow "rank 2" in a message."""

from __future__ import annotations

from enum import StrEnum


class Sign(StrEnum):
    """One observation about one rank, compared with the others."""

    # How it ended.
    RAISED = "raised an exception of its own"
    CRASHED = "was ended by a signal"
    LEFT_WITH_CODE = "left with an exit code"
    LOST_PEER = "complained of a lost peer"
    LEFT_WELL = "had ended well"
    STOPPED = "was still running"
    ALONE_RAISED = "alone raised an exception of its own"
    ALONE_CRASHED = "alone was ended by a signal"
    ALONE_LEFT_WITH_CODE = "alone left with an exit code"
    ALONE_LOST_PEER = "alone complained of a lost peer"
    ALONE_LEFT_WELL = "alone had ended well"
    ALONE_STOPPED = "alone was still running"
    ENDED_FIRST = "ended first"
    FAILED_AS_ANOTHER = "failed as another rank did"
    LOGGED_AN_EXCEPTION = "had logged an exception"
    FIRST_RANK = "is the first rank"

    # Where it was, if it was still running.
    IN_A_COLLECTIVE = "waited in a collective"
    SEEMED_TO_WAIT = "seemed to wait for another"
    BUSY = "did something else than wait"
    NO_STACK = "showed no stack"
    ALONE_IN_A_COLLECTIVE = "alone waited in a collective"
    ALONE_SEEMED_TO_WAIT = "alone seemed to wait for another"
    ALONE_BUSY = "alone did something else than wait"
    ALONE_NO_STACK = "alone showed no stack"
    AT_A_PLACE_OF_ITS_OWN = "was at a line where no other was"

    # Which rank mentions which.
    NAMED = "is named by a rank that failed"
    ONLY_ONE_NAMED = "is the only one that the first failure names"
    NUMBER_SAID = "may be meant by a number in a failure"
    ONLY_NUMBER_SAID = "may be meant by the only number in the first failure"
    NOT_IN_THE_LIST = "is the only one that is missing in a list"
    IN_LAST_WORDS = "is in the last words of another rank"
    NAMES_ANOTHER = "names another rank"
    SAYS_A_NUMBER = "says a number that another rank has"

    # Its output.
    LINE_OF_ITS_OWN = "printed a line of a kind that no other did"
    ONLY_LINE_OF_ITS_OWN = "alone printed a line of a kind that no other did"
    ONLY_LINE_BUT_THE_FIRST = "alone, but for the first rank, printed a line of a kind that no other did"
    LACKS_A_LINE = "did not print a line that all the others did"
    ALONE_LACKS_A_LINE = "alone did not print a line that all the others did"
    ALONE_SAYS_OTHERWISE = "alone did not say what all the others did"
    ANOTHER_VALUE = "gave another value than all the others"
    ONLY_OTHER_VALUE = "alone gave another value than all the others"
    OTHER_VALUE_BUT_THE_FIRST = "gave another value than all but the first rank"
    SAID_NOTHING = "alone printed nothing"
    BEHIND = "was behind all the others"
    AHEAD = "was ahead of all the others"

    # The result of the rules.
    RULES_CERTAIN = "is named by the rules for certain"
    RULES_LIKELY = "is likely by the rules"
    RULES_UNSURE = "is a guess of the rules"
    RULES_FOR_A_LONE_EXCEPTION = "is named by the rules for an exception that speaks of nobody"
    RULES_THOUGH_IT_NAMES_ANOTHER = "is named by the rules, though it names another"
    RULES_THOUGH_IT_RAISED_NOTHING = "is named by the rules, though it raised nothing of its own"
    RULES_FOR_THE_FIRST_RANK = "is named by the rules and the first rank"

    # No rank is to blame.
    NOBODY = "no rank is to blame"
    NOBODY_CERTAIN = "the rules name nobody and are certain"
    NOBODY_LIKELY = "the rules name nobody, which is likely"
    NOBODY_UNSURE = "the rules do not know whom to name"
    NOBODY_ALL_ALIKE = "all ranks failed alike"
    NOBODY_WHILE_MEETING = "the ranks did not find each other"
    NOBODY_OF_TWO = "there are only two ranks"
