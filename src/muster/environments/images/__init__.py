"""Images that ranks run in: engines, their command lines, what an image holds, packages on top of one."""
