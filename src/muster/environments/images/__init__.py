"""Images that ranks run in: engines, their command lines, what an image contains, packages on top of one."""
